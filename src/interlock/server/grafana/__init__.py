"""The dashboard for Grafana, made from the table of metrics; `make docs` writes it to docs/grafana/.

panels   what is asked of Prometheus, and what that is called
board    how Grafana wants it
"""

from interlock.server.grafana.board import dashboard

__all__ = ["dashboard"]
