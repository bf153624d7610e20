"""Makes sure that there is a promtool, which tests the alerts; and makes the Kubernetes object of their rules.

`deploy/monitoring/prometheus-rule.yaml` is `alerts.yaml` as a PrometheusRule. `python -m scripts.alerts` writes it anew
where it is not.
"""

import textwrap
from pathlib import Path

from scripts.programs import Program, provide

PROMTOOL = Program(title="promtool", variable="RUNYARD_TEST_PROMTOOL", names=("promtool",), package="prometheus")
FOLDER = Path(__file__).resolve().parents[1] / "deploy/monitoring"
ALERTS, RULE = FOLDER / "alerts.yaml", FOLDER / "prometheus-rule.yaml"

HEAD = """\
# alerts.yaml for the Prometheus operator: `python -m scripts.alerts` makes this file of it.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: runyard
spec:
"""


def prometheus_rule() -> str:
    return HEAD + textwrap.indent(ALERTS.read_text(), "  ")


if __name__ == "__main__":
    RULE.write_text(prometheus_rule())
    provide(PROMTOOL)
