"""Prometheus metrics: what has ended is counted, what is going on is read when asked."""

from gateway.metrics.gauges import Readings, UpstreamReading
from gateway.metrics.metrics import Metrics
from gateway.metrics.series import Counted

__all__ = ["Counted", "Metrics", "Readings", "UpstreamReading"]
