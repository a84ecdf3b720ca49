"""The training loop: build, step, log, evaluate, save, stop when preempted. Start reading the trainer at `train`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch
from torch import nn

from trainer.checkpoints.state import RunCheckpoints, RunState
from trainer.config import RECIPES, RecipeConfig
from trainer.data.datasets import Batch, Data
from trainer.data.sampler import EpochSampler
from trainer.exit_codes import DataError, PreemptedError, StorageError, diverged
from trainer.models import learning_rate, signature
from trainer.reporter import CLOSE_SECONDS, PREEMPTED_CLOSE_SECONDS, Reporter, node_name
from trainer.runtime import Runtime
from trainer.runtime.base import Decision
from trainer.step_log import StepLog
from trainer.step_profile import StepProfile, XlaStepProfile
from trainer.storage import Folder
from trainer.tasks import Task, build_task
from trainer.watchdog import Watchdog, wait_for_ranks

MAX_LISTED = 10
"""Maximum number of unreadable samples to report one by one."""


def train(config: RecipeConfig, runtime: Runtime, preempted: Callable[[], bool]) -> None:
    """Train to the end of the last epoch. Resume from the newest checkpoint if there is one."""
    bucket = Folder(config.bucket) if config.bucket else None
    folder = bucket.child(config.job) if bucket else None
    report = Reporter(runtime.rank, runtime.world, folder, job=config.job, wandb=config.wandb)
    watchdog = Watchdog(runtime, on_slow=lambda rank, ratio: report.event("straggler", slow_rank=rank, slower=ratio))
    try:
        with watchdog:
            Training(config, runtime, report, bucket, watchdog, preempted).run()
    except BaseException as error:
        # Raise the original error, not an error of the cleanup, which has a time limit.
        report.close_within(PREEMPTED_CLOSE_SECONDS if isinstance(error, PreemptedError) else CLOSE_SECONDS)
        raise
    report.close()


class Training:
    """The training run of a rank."""

    def __init__(
        self,
        config: RecipeConfig,
        runtime: Runtime,
        report: Reporter,
        bucket: Folder | None,
        watchdog: Watchdog,
        preempted: Callable[[], bool],
    ) -> None:
        self.config, self.runtime, self.report, self.watchdog = config, runtime, report, watchdog
        self.preempted = preempted
        self.task, self.state, self.model = build_components(config, runtime, report)
        self.data = self.task.data
        self.sampler = self.state.sampler
        self.num_reported = len(self.data.broken)
        self.log = StepLog(config, self.task, self.state, runtime, report, watchdog)
        self.checkpoints = RunCheckpoints(config, bucket, runtime, self.state, report) if bucket else None
        self.profile = (XlaStepProfile if runtime.device.type == "xla" else StepProfile)(config, runtime, report)

    def run(self) -> None:
        """Resume, then train, evaluate and save, epoch by epoch."""
        if self.checkpoints:
            self.checkpoints.resume()
        done = self.state.step
        self.profile.warn_if_outside(done, done + self.sampler.steps_until(self.config.epochs))
        self.log.clock.start()
        while self.sampler.epoch < self.config.epochs:
            self.train_epoch()
            self.evaluate()
            self.num_reported = report_unreadable(self.data, self.report, reported=self.num_reported)
            self.sampler.next_epoch()
            self.save()
        self.wait_for_save()
        self.profile.end()
        self.report.event(
            "done",
            global_step=None,
            **self.state.results,
            # A run that resumed with a smaller `epochs` may have trained for more epochs already.
            epochs=max(self.config.epochs, self.sampler.epoch),
            seconds=self.log.clock.seconds,
        )

    def train_epoch(self) -> None:
        """Run the remaining steps of the epoch."""
        self.model.train()
        steps = self.sampler.epoch_steps
        while self.sampler.steps_left:
            is_first = self.log.clock.units == 0
            with self.observe_step():
                share = self.sampler.next()
                batch = self.data.batch(share, world=self.runtime.data_world)
                self.log.steps.data_ready()
                self.watchdog.heartbeat()
                with self.runtime.training(self.state.step + 1):
                    self.step(batch)
            self.log.count(share.total * self.task.units_per_sample, steps - self.sampler.steps_left, steps)
            if is_first:
                for tensor, spread in self.runtime.shardings(self.state.model, batch).items():
                    self.report.event("sharding", tensor=tensor, devices=spread)
            self.log.emit(self.state.step)
            self.apply_decision(self.runtime.all_reduce_decision(self.decision()))
            if self.config.checkpoint_steps and self.state.step % self.config.checkpoint_steps == 0:
                self.save()
            every = self.task.evaluate_steps
            if every and self.state.step % every == 0 and self.sampler.steps_left:
                self.evaluate()
                self.model.train()
        self.log.emit()

    @contextmanager
    def observe_step(self) -> Iterator[None]:
        """Return a context that times and profiles one step. Its start counts as a heartbeat."""
        self.watchdog.heartbeat()
        self.profile.before(self.state.step + 1)
        self.log.steps.begin()
        yield
        self.log.steps.end()
        self.profile.after(self.state.step)

    def step(self, batch: Batch) -> None:
        """Run one optimizer step. It waits for the device only if a save is still copying tensors."""
        optimizer, scaler = self.state.optimizer, self.state.scaler
        self.runtime.set_learning_rate(
            optimizer, learning_rate(self.config, self.sampler.progress / self.config.epochs)
        )
        parts = self.config.accumulate
        *earlier, last = zip(batch.inputs.chunk(parts), batch.labels.chunk(parts), strict=True)
        for micro_batch in earlier:
            with self.runtime.no_sync(self.model):
                self.forward_backward(*micro_batch, batch.scale)
        self.forward_backward(*last, batch.scale)
        self.runtime.sync_gradients(self.state.model)
        self.log.steps.gradients_ready()
        scaler.unscale_(optimizer)
        self.task.before_update(self.state.model, self.log.meter)
        if self.checkpoints:
            # The update changes the tensors that are being saved.
            self.checkpoints.wait_for_copies()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        self.state.step += 1

    def forward_backward(self, inputs: torch.Tensor, labels: torch.Tensor, scale: float | torch.Tensor) -> None:
        """Run the forward and backward pass of these samples. Add to the gradients."""
        with self.runtime.autocast():
            output = self.model(inputs)
            objective, loss = self.task.loss(output, labels)
        # During the backward pass, other ranks get this rank's gradients and may finish the step. So poll for a signal
        # now. After a later signal, this rank saves the step before it exits.
        self.preempted()
        self.state.scaler.scale(objective * scale).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        self.log.meter.add(loss, output, labels)

    def evaluate(self) -> None:
        """Evaluate the model and report the result.

        If the run is preempted meanwhile, the resumed run repeats only an evaluation at the end of an epoch.
        """
        self.log.flush()
        self.apply_decision(self.runtime.all_reduce_decision_now(self.decision()))
        found = self.task.evaluate(self.state.model, self.stop_requested)
        if found is None:
            self.apply_decision(Decision.PREEMPT)
            return
        step, epoch = self.state.step, self.sampler.epoch + 1
        self.report.event("test", found.gallery, global_step=step, epoch=epoch, **found.measures)
        if not math.isfinite(found.measures["loss"]):
            self.apply_decision(Decision.DIVERGED)
        name = self.task.main_measure
        value, results = found.measures[name], self.state.results
        results[f"test_{name}"], best = value, results.get(f"best_{name}", value)
        results[f"best_{name}"] = self.task.best(value, best)
        self.task.after_evaluation(self.state.model, self.report, self.state.step, self.stop_requested)

    def stop_requested(self) -> bool:
        """Return True if a stop was requested. Also records a heartbeat."""
        self.watchdog.heartbeat()
        return self.preempted()

    def save(self) -> None:
        """Save a checkpoint unless any rank has a non-finite loss."""
        self.log.flush()
        decision = Decision.CONTINUE if self.log.is_finite else Decision.DIVERGED
        self.apply_decision(self.runtime.all_reduce_decision_now(decision))
        self.watchdog.heartbeat()
        if self.checkpoints:
            self.checkpoints.save_state()

    def wait_for_save(self) -> None:
        """Wait until the last save is complete. Raises DivergedError if its weights are not finite."""
        if self.checkpoints:
            self.checkpoints.wait()

    def decision(self) -> Decision:
        """Return this rank's decision about the next step."""
        if not self.log.is_finite:
            return Decision.DIVERGED
        return Decision.PREEMPT if self.preempted() else Decision.CONTINUE

    def apply_decision(self, agreed: Decision) -> None:
        """Act on the common decision of all ranks. All ranks must call this after the same step."""
        if agreed == Decision.DIVERGED:
            # The running save may contain weights that are not finite. Wait until it ends and deletes this checkpoint.
            with suppress(StorageError):
                self.wait_for_save()
            raise diverged(self.state.step, self.config.learning_rate)
        if agreed == Decision.PREEMPT:
            self.save()
            self.wait_for_save()
            self.profile.end()
            note = "" if self.checkpoints else "; no checkpoint was saved because --bucket is not set"
            raise PreemptedError(f"preempted at step {self.state.step}{note}")


def build_components(config: RecipeConfig, runtime: Runtime, report: Reporter) -> tuple[Task, RunState, nn.Module]:
    """Report the run's settings and build its task, its state, and the model whose gradients all ranks average.

    Raises ConfigurationError or DataError.
    """
    report.event(
        "start",
        node=node_name(),
        device=runtime.device.type,
        threads=torch.get_num_threads(),
        precision=str(runtime.precision).removeprefix("torch."),
        recipe=next(name for name, kind in RECIPES.items() if type(config) is kind),
        model=signature(config),
    )
    torch.manual_seed(config.seed)
    task = build_task(config, runtime)
    data = task.data
    check_same_data(data, runtime)
    report_unreadable(data, report)
    model, optimizer = task.build()
    sampler = EpochSampler(
        data.num_samples,
        rank=runtime.data_rank,
        world=runtime.data_world,
        batch_size=config.batch_size,
        seed=config.seed,
    )
    data.follow(sampler)
    state = RunState(
        signature=signature(config),
        model=model,
        optimizer=optimizer,
        sampler=sampler,
        model_facts=task.describe(),
        # Only float16 needs the scaler, because small gradients would become zero.
        scaler=torch.amp.GradScaler(runtime.device.type, enabled=runtime.precision == torch.float16),
    )
    if config.compile:
        # Compile the model and not its wrapper: torch compiles no wrapper around a model whose code is part of torch.
        # The compiler still splits the graph where DistributedDataParallel splits the gradients.
        model.compile()
    return task, state, runtime.wrap(model)


def check_same_data(data: Data, runtime: Runtime) -> None:
    """Raise DataError if a rank has another number of samples or classes than rank 0."""
    own = {"training samples": data.num_samples, "test samples": data.num_tests, "classes": data.classes}
    wait_for_ranks(runtime, "data")
    first, *others = runtime.gather(own)
    for rank, other in enumerate(others, start=1):
        for name, count in other.items():
            if count != first[name]:
                raise DataError(
                    f"rank {rank} has {count} {name}, and rank 0 has {first[name]}; all hosts must have the same "
                    "data: give every host the same files in --data-dir"
                )


def report_unreadable(data: Data, report: Reporter, *, reported: int = 0) -> int:
    """Report the unreadable samples after the first `reported`, and return how many there are now."""
    broken = data.broken
    for text in broken[reported:][:MAX_LISTED]:
        report.event("broken", sample="_".join(text.split()))
    if len(broken) > reported:
        report.event("broken_samples", count=len(broken))
    return len(broken)
