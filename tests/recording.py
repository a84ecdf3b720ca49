"""Recording engine of the previews, under the name that tests use."""

from commands.review.recorded import LOCAL_CLUSTER, Record, RecordingEngine, run

__all__ = ["LOCAL_CLUSTER", "Record", "RecordingEngine", "run"]
