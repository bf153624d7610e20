"""Reads KEDA's objects from standard input, a JSON array, through the models of its definitions.

Runs in .tools/manifests, which has them. Prints each object as it was understood: what a model does not know is missing
from it.
"""

import json
import sys

from cloudcoil.models.keda import v1alpha1

understood = [getattr(v1alpha1, item["kind"]).model_validate(item) for item in json.load(sys.stdin)]
json.dump([item.model_dump(mode="json", by_alias=True, exclude_unset=True) for item in understood], sys.stdout)
