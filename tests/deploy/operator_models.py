"""Reads an operator's objects from standard input, a JSON array, through the models of its definitions.

The argument is the module of `cloudcoil.models` that has them. Runs in .tools/manifests, which has those. Prints each
object as it was understood: what a model does not know is missing from it.
"""

import importlib
import json
import sys

models = importlib.import_module(f"cloudcoil.models.{sys.argv[1]}")
understood = [getattr(models, item["kind"]).model_validate(item) for item in json.load(sys.stdin)]
json.dump([item.model_dump(mode="json", by_alias=True, exclude_unset=True) for item in understood], sys.stdout)
