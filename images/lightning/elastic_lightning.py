"""Script of an example: train digits with Lightning on a changing number of hosts. At the end, upload the model.

`python -m trainer.launch elastic_lightning.py --epochs=8` starts this script under torchrun. Whenever a host leaves or
joins, torchrun restarts the script on the current hosts. Each start resumes from the newest checkpoint.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch
import tyro
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy
from torch.nn import functional

from trainer.config import DigitsConfig
from trainer.data.datasets import Digits
from trainer.data.sampler import EpochSampler
from trainer.distributed import init_process_group, launcher_number
from trainer.exit_codes import BAD_CONFIGURATION, DONE, TrainerError
from trainer.gpu import should_use_gpu
from trainer.models import digits_network
from trainer.reporter import Reporter, node_name
from trainer.rules import BucketUrl, Count, FolderName, LearningRate, check_settings, invalid_setting
from trainer.step_log import RateClock
from trainer.storage import Folder, checkpoints_folder

MODEL = "model.pt"
"""File with the weights, which rank 0 uploads after the training."""
TIMEOUT = timedelta(minutes=5)
"""Time after which a rank that does not answer counts as hanging."""


class Step(NamedTuple):
    """This rank's samples of a step."""

    images: torch.Tensor
    labels: torch.Tensor
    scale: float
    """Factor for this rank's sum of losses. The mean of all ranks' scaled sums is the mean loss over all samples."""
    total: int
    """Number of samples over all ranks."""
    position: int
    """Number of the epoch's samples up to and including this step, over all ranks."""
    number: tuple[int, int]
    """Number of the step in the epoch, and number of steps of the epoch."""


class Steps:
    """Remaining steps of an epoch. It has no `__len__`, because their number depends on the number of ranks."""

    def __init__(self, data: Digits, sampler: EpochSampler, epoch: Callable[[], int]) -> None:
        self._data, self._sampler, self._epoch = data, sampler, epoch
        self.resumed = (0, 0)
        """Epoch and position of the restored checkpoint."""

    def __iter__(self) -> Iterator[Step]:
        sampler, (epoch, position) = self._sampler, self.resumed
        sampler.epoch = self._epoch()
        sampler.position = position if sampler.epoch == epoch else 0
        steps = sampler.epoch_steps
        while sampler.steps_left:
            share = sampler.next()
            batch = self._data.batch(share, world=sampler.world)
            number = (steps - sampler.steps_left, steps)
            yield Step(batch.inputs, batch.labels, float(batch.scale), share.total, sampler.position, number)


class AtomicFiles(TorchCheckpointIO):
    """Writer of checkpoints that are complete even if the host is killed.

    Lightning itself writes a temporary file and moves it. A move between two disks is a copy, and a host that is killed
    during the copy leaves half a file.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint. Raises StorageError."""
        assert storage_options is None
        content = io.BytesIO()
        torch.save(checkpoint, content)
        self._folder.write(PurePosixPath(path).name, content.getvalue())


def lightning_path(folder: Folder) -> str:
    """Return a folder as Lightning expects it: a path on a disk, else a URL."""
    return folder.path if folder.is_local else folder.url


def newest_checkpoint(folder: Folder) -> str | None:
    """Return the path or URL of the newest checkpoint, or None if there is none."""
    names = [name for name in folder.names() if name.endswith(".ckpt")]
    return f"{lightning_path(folder)}/{names[-1]}" if names else None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a run."""

    epochs: Count = 8
    """Passes over the training set."""
    batch_size: Count = 32
    """Samples per rank and step."""
    learning_rate: LearningRate = 2e-3
    """Learning rate of AdamW."""
    checkpoint_steps: Count = 10
    """Steps between two checkpoints."""
    log_steps: Count = 5
    """Steps between two printed lines."""
    bucket: BucketUrl = field(default_factory=lambda: os.environ.get("TRAINYARD_BUCKET", ""))
    """URL of the storage for checkpoints and the model, by default $TRAINYARD_BUCKET."""
    job: FolderName = field(default_factory=lambda: os.environ.get("TRAINYARD_JOB", "training"))
    """Name of the run's folder in the bucket, by default $TRAINYARD_JOB."""

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.bucket:
            allowed = "file:///FOLDER, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER"
            raise invalid_setting("bucket", self.bucket, allowed, "set --bucket or TRAINYARD_BUCKET to such a URL")


class Ranks(NamedTuple):
    """This rank's number, the number of ranks, and the number of ranks per host."""

    rank: int
    world: int
    local_world: int


class TestBatches:
    """This rank's part of the test set."""

    def __init__(self, data: Digits, ranks: Ranks) -> None:
        self._data, self._ranks = data, ranks

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return self._data.test_batches(rank=self._ranks.rank, world=self._ranks.world)


class DigitsModule(LightningModule):
    """The digits network. Its metrics cover the samples of all ranks."""

    def __init__(self, settings: Settings, data: Digits, ranks: Ranks) -> None:
        super().__init__()
        self.settings, self.data = settings, data
        self.network = digits_network(classes=data.classes, channels=data.sample_shape[0])
        sampler = EpochSampler(
            data.num_samples, rank=ranks.rank, world=ranks.world, batch_size=settings.batch_size, seed=0
        )
        self.steps = Steps(data, sampler, lambda: self.current_epoch)
        self.place = (0, 0)
        """Epoch, and position in the epoch after the last step."""

    def training_step(self, batch: Step, _number: int) -> torch.Tensor:
        """Return the scaled loss, so that DDP's average gradient is that of the mean loss of all samples."""
        logits = self.network(batch.images)
        loss = functional.cross_entropy(logits, batch.labels, reduction="sum")
        self._log("", loss, logits, batch.labels)
        self.place = (self.current_epoch, batch.position)
        return loss * batch.scale

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], _number: int) -> None:
        """Evaluate a batch of the test set."""
        images, labels = batch
        logits = self.network(images)
        self._log("test_", functional.cross_entropy(logits, labels, reduction="sum"), logits, labels)

    def _log(self, prefix: str, loss: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        right = 100 * (logits.argmax(dim=1) == labels).float().mean()
        values = {f"{prefix}loss": loss.detach() / len(labels), f"{prefix}accuracy": right}
        self.log_dict(values, sync_dist=True, batch_size=len(labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=self.settings.learning_rate)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the position in the epoch in samples. Lightning counts steps, which depend on the number of ranks."""
        checkpoint["place"] = self.place

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the position in the epoch.

        For a checkpoint of an epoch's last step, count the epoch here. Lightning would count it too late, after it has
        created the iterator. A run that resumes a second time at the end of an epoch would not count it at all.
        """
        epoch, position = checkpoint["place"]
        if position == self.data.num_samples:
            epoch, position = epoch + 1, 0
            loop = checkpoint["loops"]["fit_loop"]
            for counts in loop["epoch_progress"].values():
                counts.update(dict.fromkeys(counts, epoch))
            loop["epoch_loop.batch_progress"]["is_last_batch"] = False
        self.place = self.steps.resumed = (epoch, position)


class Lines(Callback):
    """Callback that reports events in the format of the trainer's recipes."""

    def __init__(self, report: Reporter, settings: Settings) -> None:
        self._report, self._settings = report, settings
        self._clock = RateClock()
        self._own_samples = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report a resumed run, and start the clock.

        Also restore the default action of SIGTERM, so that a preempted rank exits at once. Lightning's own handler
        would first wait for ranks that may be gone.
        """
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert isinstance(pl_module, DigitsModule)
        if trainer.global_step:
            epoch, position = pl_module.place
            self._report.event("resume", step=trainer.global_step, epoch=epoch + 1, position=position)
        self._clock.start()

    def on_train_batch_end(
        self, trainer: Trainer, _module: LightningModule, _outputs: object, batch: Step, _number: int
    ) -> None:
        """Report every `log_steps`-th step, and the last step of the epoch."""
        self._clock.units += batch.total
        self._own_samples += len(batch.labels)
        number, steps = batch.number
        if number != steps and number % self._settings.log_steps:
            return
        seconds, rate = self._clock.lap()
        self._report.event(
            "train",
            global_step=trainer.global_step,
            epoch=trainer.current_epoch + 1,
            step=(number, steps),
            loss=float(trainer.callback_metrics["loss"]),
            accuracy=float(trainer.callback_metrics["accuracy"]),
            rate=self._own_samples / seconds,
            global_rate=rate,
        )
        self._own_samples = 0

    def on_validation_end(self, trainer: Trainer, _module: LightningModule) -> None:
        """Report the result on the whole test set."""
        found = trainer.callback_metrics
        # A run that has resumed after its last step has already counted the epoch.
        epoch = min(trainer.current_epoch + 1, self._settings.epochs)
        accuracy, loss = float(found["test_accuracy"]), float(found["test_loss"])
        self._report.event("test", global_step=trainer.global_step, epoch=epoch, accuracy=accuracy, loss=loss)


def train(settings: Settings, ranks: Ranks) -> None:
    """Train to the end of the last epoch. Resume from the newest checkpoint if there is one."""
    bucket = Folder(settings.bucket)
    folder = bucket.child(settings.job)
    report = Reporter(ranks.rank, ranks.world, folder, job=settings.job)
    gpu = should_use_gpu()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
    report.event(
        "start", node=node_name(), device=device.type, attempt=os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    )
    backend = "nccl" if gpu else "gloo"
    if ranks.world > 1:
        if gpu:
            torch.cuda.set_device(device)
        # Initialise the group here, because Lightning would read keys of earlier ranks from torchrun's store.
        init_process_group(backend, TIMEOUT)
    torch.manual_seed(0)
    data = Digits(DigitsConfig(), device)
    module = DigitsModule(settings, data, ranks)
    saved = checkpoints_folder(bucket, settings.job)
    trainer = Trainer(
        accelerator="gpu" if gpu else "cpu",
        devices=ranks.local_world,
        num_nodes=ranks.world // ranks.local_world,
        strategy=DDPStrategy(process_group_backend=backend) if ranks.world > 1 else "auto",
        max_epochs=settings.epochs,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        plugins=[AtomicFiles(saved)],
        callbacks=[
            Lines(report, settings),
            ModelCheckpoint(
                lightning_path(saved),
                filename="{step:09d}",
                monitor="step",
                mode="max",
                save_top_k=2,
                every_n_train_steps=settings.checkpoint_steps,
                enable_version_counter=False,
            ),
        ],
    )

    try:
        trainer.fit(module, module.steps, TestBatches(data, ranks), ckpt_path=newest_checkpoint(saved))
        if "test_accuracy" not in trainer.callback_metrics:
            # The run has resumed after its last step, so Lightning has neither trained nor evaluated.
            trainer.validate(module, TestBatches(data, ranks), verbose=False)
        if trainer.is_global_zero:
            upload(module, folder)
            report.event("upload", path=f"{folder.url}/{MODEL}")
        accuracy = float(trainer.callback_metrics["test_accuracy"])
        report.event("done", test_accuracy=accuracy, epochs=settings.epochs)
    finally:
        report.close()


def upload(module: DigitsModule, folder: Folder) -> None:
    """Upload the weights to the run's folder."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / MODEL
        torch.save(module.network.state_dict(), file)
        folder.upload(str(file), MODEL)


def main() -> int:
    """Run one rank and return the exit code."""
    try:
        settings = tyro.cli(Settings)
        world, local_world = (launcher_number(name, "1", least=1) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
        train(settings, Ranks(launcher_number("RANK", "0", below=world), world, local_world))
    except SystemExit as end:
        return BAD_CONFIGURATION if end.code else DONE
    except TrainerError as error:
        print(f"error: {error} (exit code {error.exit_code})", file=sys.stderr, flush=True)
        return error.exit_code
    except Exception:  # the process must end here and not wait for the other ranks
        traceback.print_exc()
        return 1
    return DONE


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Use os._exit instead of sys.exit, because connections to lost ranks would delay the exit.
    os._exit(code)
