"""Print the names of the models in the trainer's image: `python -m tests.trainer.model_names`."""

from __future__ import annotations

from trainer.models import classifiers
from workloads.trainer_flags import MODELS_FILE


def names() -> list[str]:
    """Return the classifiers of the trainer's libraries, sorted."""
    import timm

    return sorted({*classifiers(), *timm.list_models()})


if __name__ == "__main__":
    MODELS_FILE.write_text("\n".join(names()) + "\n", encoding="ascii")
