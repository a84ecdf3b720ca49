"""The training loop: step, log, evaluate, save, leave when told to. Start reading here, at `train`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import torch
from torch.nn import functional

from trainer.checkpoint import Checkpoints
from trainer.config import DigitsConfig, ImagenetConfig, TrainConfig, recipe, step_range
from trainer.data import Batch, load_data
from trainer.efficiency import Efficiency
from trainer.exit_codes import DivergedError, PreemptedError
from trainer.gallery import Collector
from trainer.metrics import Meter, RateClock, Reporter, node_name
from trainer.models import build_model, build_optimizer, signature
from trainer.runtime import Runtime
from trainer.runtime.base import Verdict
from trainer.sampler import EpochSampler
from trainer.state import RunState
from trainer.step_clock import StepClock
from trainer.storage import Folder
from trainer.watch import Watch

LONGEST_LIST = 10
"""Broken samples that are named one by one."""


def train(config: DigitsConfig | ImagenetConfig, runtime: Runtime, told_to_leave: Callable[[], bool]) -> None:
    """Train to the end of the last epoch, from the newest checkpoint on where there is one."""
    folder = Folder(config.bucket).child(config.job) if config.bucket else None
    report = Reporter(runtime, folder, job=config.job, wandb=config.wandb)
    watch = Watch(
        runtime,
        bound=config.process_group_timeout,
        slow=lambda rank, times: report.event("straggler", slow_rank=rank, slower=times),
    )
    try:
        with watch:
            training = Training(config, runtime, report, folder, watch, told_to_leave)
            training.resume()
            training.run()
    finally:
        report.close()


class Training:
    """One rank's training run: its parts, and what is done with them."""

    def __init__(
        self,
        config: DigitsConfig | ImagenetConfig,
        runtime: Runtime,
        report: Reporter,
        folder: Folder | None,
        watch: Watch,
        told_to_leave: Callable[[], bool],
    ) -> None:
        self.config, self.runtime, self.report, self.told_to_leave = config, runtime, report, told_to_leave
        self.watch = watch
        report.event(
            "start",
            node=node_name(),
            device=runtime.device.type,
            threads=torch.get_num_threads(),
            precision=str(runtime.precision).removeprefix("torch."),
            recipe=recipe(config),
            model=signature(config),
        )
        torch.manual_seed(config.seed)
        rank, world = runtime.rank, runtime.world
        self.data = runtime.feed(load_data(config, runtime))
        if self.data.broken:
            self.name_broken()
        model = build_model(config, classes=self.data.classes, channels=self.data.channels).to(runtime.device)
        if config.channels_last:
            model = model.to(memory_format=torch.channels_last)
        self.optimizer = build_optimizer(config, model)
        self.sampler = EpochSampler(
            self.data.num_samples, rank=rank, world=world, batch_size=config.batch_size, seed=config.seed
        )
        self.data.follow(self.sampler)
        # Does nothing but for float16, whose gradients would vanish.
        self.scaler = torch.amp.GradScaler(runtime.device.type, enabled=runtime.precision == torch.float16)
        self.state = RunState(
            signature=signature(config),
            model=model,
            optimizer=self.optimizer,
            sampler=self.sampler,
            scaler=self.scaler,
        )
        self.checkpoints = self.open_checkpoints(folder) if folder else None
        self.model = runtime.wrap(model)
        if config.compile:
            self.model.compile()
        self.meter = Meter(runtime.device)
        self.clock = RateClock()
        self.steps = StepClock(model, runtime.device, world=world)
        self.efficiency = Efficiency(config, self.data, self.state, self.steps, runtime.device)
        asked = step_range(config.profile_steps)
        self.profile = runtime.step_profile(config, *asked) if folder and asked else None
        self.finite = True
        self.unsaid: deque[tuple[int, Callable[[], None]]] = deque()

    def open_checkpoints(self, folder: Folder) -> Checkpoints:
        """The checkpoints in the run's folder."""
        return Checkpoints(
            folder.child("checkpoints"),
            self.runtime,
            keep=self.config.keep_checkpoints,
            keep_hours=self.config.keep_hours,
            on_saved=lambda step, url, seconds: self.report.event("checkpoint", step=step, path=url, seconds=seconds),
        )

    def run(self) -> None:
        """Train, evaluate and save, epoch by epoch."""
        self.clock.start()
        while self.sampler.epoch < self.config.epochs:
            self.train_epoch()
            self.evaluate()
            self.sampler.next_epoch()
            self.save()
        self.finish_saving()
        self.report.event(
            "done",
            test_accuracy=self.state.test_accuracy,
            best_accuracy=self.state.best_accuracy,
            epochs=self.config.epochs,
            seconds=self.clock.seconds,
        )

    def train_epoch(self) -> None:
        """Take the steps that are left of the epoch; the first step of a run and the last of an epoch are logged."""
        self.model.train()
        steps = -(-self.sampler.num_samples // self.sampler.global_batch)
        while self.sampler.steps_left:
            self.watch.beat()
            if self.profile:
                self.profile.before(self.state.step + 1)
            self.steps.begin()
            share = self.sampler.next()
            batch = self.data.batch(share, world=self.runtime.world)
            self.steps.fed()
            self.watch.beat()
            with self.runtime.training(self.state.step + 1):
                self.step(batch)
            self.steps.end()
            if self.profile and (trace := self.profile.after(self.state.step)):
                self.report.event("profile", path=trace)
            number = steps - self.sampler.steps_left
            first = self.clock.samples == 0
            self.clock.count(share.total)
            if first or number % self.config.log_steps == 0 or number == steps:
                self.log(number, steps)
            if first:
                for tensor, spread in self.runtime.shardings(self.state.model, batch).items():
                    self.report.event("sharding", tensor=tensor, devices=spread)
            self.say(self.state.step)
            self.obey(self.runtime.vote(self.verdict()))
            if self.config.checkpoint_steps and self.state.step % self.config.checkpoint_steps == 0:
                self.save()
        self.say()

    def step(self, batch: Batch) -> None:
        """One optimiser step; nothing in here waits for the device."""
        rate = learning_rate(self.config, self.sampler.progress / self.config.epochs)
        self.runtime.set_rate(self.optimizer, rate)
        parts = list(zip(*(whole.chunk(self.config.accumulate) for whole in (batch.images, batch.labels)), strict=True))
        for images, labels in parts[:-1]:
            with self.runtime.alone(self.model):
                self.learn(images, labels, batch.scale)
        images, labels = parts[-1]
        self.learn(images, labels, batch.scale)
        self.runtime.exchange(self.state.model)
        self.steps.reduced()
        if self.checkpoints:
            self.checkpoints.copied()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.state.step += 1

    def learn(self, images: torch.Tensor, labels: torch.Tensor, scale: float | torch.Tensor) -> None:
        """Add the gradient of these samples to what there is."""
        with self.runtime.autocast():
            logits = self.model(images)
            loss = functional.cross_entropy(
                logits, labels, reduction="sum", label_smoothing=self.config.label_smoothing
            )
        self.scaler.scale(loss * scale).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        self.meter.add(loss, logits, labels)

    def log(self, number: int, steps: int) -> None:
        """Note how the last steps went, for `say`."""
        global_step, epoch, counts = self.state.step, self.sampler.epoch + 1, self.runtime.counts()
        sums, times = self.meter.sums(), self.steps.take()
        seconds, global_rate = self.clock.lap()
        self.watch.worked(times.steps, times.own)

        def line() -> None:
            loss, accuracy, samples = self.meter.take(sums)
            self.report.event(
                "train",
                global_step=global_step,
                epoch=epoch,
                step=(number, steps),
                loss=loss,
                accuracy=accuracy,
                rate=samples / seconds,
                global_rate=global_rate,
                **self.efficiency.shares(times, samples / seconds),
                **counts,
            )
            self.finite = self.finite and math.isfinite(loss)

        self.unsaid.append((global_step + self.runtime.metrics_lag, line))

    def say(self, up_to: float = math.inf) -> None:
        """Say what was noted, as far as the device has it at this step; the one place in an epoch that waits for it."""
        while self.unsaid and self.unsaid[0][0] <= up_to:
            self.unsaid.popleft()[1]()

    def evaluate(self) -> None:
        """Measure loss and accuracy over the whole test set, every sample counted once by all ranks together."""
        model, meter = self.state.model, Meter(self.runtime.device)
        seen = Collector(self.data.classes, self.runtime.device) if self.config.wandb != "off" else None
        model.eval()
        with self.runtime.evaluating(), self.runtime.autocast():
            for images, labels in self.data.test_batches(rank=self.runtime.rank, world=self.runtime.world):
                self.watch.beat()
                logits = model(images)
                meter.add(functional.cross_entropy(logits, labels, reduction="sum"), logits, labels)
                if seen:
                    seen.add(images, logits, labels)
                self.runtime.hand_over()
            loss, accuracy, counted = meter.take(self.runtime.sum(meter.sums()))
        assert counted == self.data.num_tests, f"{counted} test samples were counted, not {self.data.num_tests}"
        self.state.test_accuracy = accuracy
        self.state.best_accuracy = max(accuracy, self.state.best_accuracy)
        epoch = self.sampler.epoch + 1
        gallery = seen.take(self.runtime) if seen else None
        self.report.event("test", gallery, global_step=self.state.step, epoch=epoch, accuracy=accuracy, loss=loss)

    def verdict(self) -> Verdict:
        """What this rank has to say to the others about going on."""
        if not self.finite:
            return Verdict.DIVERGED
        return Verdict.LEAVE if self.told_to_leave() else Verdict.GO_ON

    def obey(self, agreed: Verdict) -> None:
        """Do what all ranks agreed on; they come here after the same step."""
        if agreed == Verdict.DIVERGED:
            raise DivergedError(
                f"the loss is not a number any more, at or before step {self.state.step}; "
                f"allowed is a finite loss: lower learning_rate (now {self.config.learning_rate:g})"
            )
        if agreed == Verdict.LEAVE:
            self.save()
            self.finish_saving()
            raise PreemptedError(f"told to leave at step {self.state.step}")

    def save(self) -> None:
        """Save a checkpoint, unless some rank's loss is not a number: what is saved is always worth resuming."""
        self.say()
        self.finite = self.finite and self.meter.is_finite()
        if self.runtime.agree(self.verdict()) == Verdict.DIVERGED:
            self.obey(Verdict.DIVERGED)
        self.watch.beat()
        if self.checkpoints:
            self.state.useful_seconds = self.efficiency.useful_seconds
            self.checkpoints.save(self.state.step, self.state.capture(self.runtime))

    def finish_saving(self) -> None:
        """Wait until what was saved last is whole."""
        if self.checkpoints:
            self.checkpoints.wait()

    def resume(self) -> None:
        """Go on from the newest good checkpoint, if there is one."""
        if not self.checkpoints:
            return
        saved = self.checkpoints.newest(fits=self.state.fits, skipped=self.skipped)
        if saved is None:
            return
        self.state.restore(saved, self.runtime, seed=self.config.seed)
        self.efficiency.resume()
        self.report.event(
            "resume", step=self.state.step, epoch=self.sampler.epoch + 1, path=self.checkpoints.folder.url
        )

    def name_broken(self) -> None:
        """Say which samples cannot be read; they are in no batch."""
        for text in self.data.broken[:LONGEST_LIST]:
            self.report.event("broken", sample=text.replace(" ", "_"))
        samples = self.data.num_samples + self.data.num_tests
        self.report.event("broken_samples", count=len(self.data.broken), good=samples)

    def skipped(self, name: str, reason: str) -> None:
        """Say that a checkpoint is not used."""
        self.report.event("checkpoint_skipped", path=name, reason=reason.replace(" ", "_"))


def learning_rate(config: TrainConfig, progress: float) -> float:
    """The learning rate at a share (0 to 1) of the whole run: up along a line, then down along a cosine."""
    if progress < config.warmup:
        return config.learning_rate * progress / config.warmup
    return config.learning_rate * (1 + math.cos(math.pi * (progress - config.warmup) / (1 - config.warmup or 1))) / 2
