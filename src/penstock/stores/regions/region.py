"""Region: what one process knows of its region, and the thread that keeps it up to date."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Any

from penstock.clock import Clock
from penstock.durations import MILLISECOND, SECOND
from penstock.errors import StoreUnavailable
from penstock.events import Hooks, StoreDown, StoreUp
from penstock.stores.regions.agent import Agent, Round
from penstock.stores.regions.calls import HomeCalls, SiteCalls
from penstock.stores.regions.law import Times
from penstock.stores.regions.messages import Apply, Ask, Note, SiteState, Take, Tick
from penstock.stores.regions.watch import Watch

logger = logging.getLogger("penstock.regions")


class Region:
    """Of one `RegionStore`. Decisions read it; the thread writes it."""

    def __init__(
        self,
        agent: Agent,
        site: SiteCalls,
        home: HomeCalls,
        hooks: Hooks,
        home_name: str,
        clock: Clock,
    ) -> None:
        self.agent = agent
        self.watch = Watch()
        self.granted: int | None = None  # the floor that may be used
        self.is_cut_off = False
        self.problem = ""
        self.rounds = 0
        self.failures = 0
        self._site, self._home = site, home
        self._hooks = hooks
        self._home_name = home_name
        self._clock = clock
        self._closed = False
        self.start_over()

    @property
    def times(self) -> Times:
        return self.agent.times

    def start_over(self) -> None:
        """Begin anew; also in a forked child, whose parent keeps its thread."""
        self.started = False
        self._starting = threading.Lock()
        self._running = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._heard = self._clock.now()  # a site that has just begun is not cut off yet
        self._cut_off_since = 0

    def after_fork(self, name: str) -> None:
        """In a forked child."""
        self._site.start_over()
        self._home.start_over()
        self.agent = Agent(name, self.agent.region, self.agent.floor, self.agent.times)
        self.watch = Watch()
        self.start_over()

    # For everybody --------------------------------------------------------------------------

    def start(self) -> None:
        """Ask the site what it knows, and start the thread; only the first call does anything."""
        with self._starting:
            if self.started or self._closed:
                return
            self.tick_once()
            self.started = True
            thread = threading.Thread(target=self._run, name="penstock-region", daemon=True)
            # At the end of the interpreter there are no new threads.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def wake(self) -> None:
        """There is a key that needs more than its floor."""
        self._wake.set()

    def wait_for_floor(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while self.granted is None:
            if time.monotonic() > end:
                reason = self.problem or "the home has not granted this region a floor"
                raise StoreUnavailable(f"{self._home_name}: {reason}")
            time.sleep(0.02)

    @property
    def share_left(self) -> float:
        """Seconds until the shares of this site end if the home stays away."""
        left = self.times.lease * MILLISECOND - (self._clock.now() - self._heard)
        return max(0.0, left / SECOND)

    def forget(self, region: str) -> None:
        """Take another region off the roster."""
        self._home.forget(region)

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(3)
        self._site.close()
        self._home.close()

    # The thread -------------------------------------------------------------------------

    def _run(self) -> None:
        pace = self.times.pace / 1000
        while not self._closed:
            self._wake.wait(pace)
            self._wake.clear()
            if self._closed:
                return
            try:
                self.run_round()
            except Exception:  # the thread must go on: without it, the shares end
                logger.exception("a round of region %s failed", self.agent.region)
            # Keys that need more wake it up, and are gathered.
            threading.Event().wait(pace / 4)

    def tick_once(self) -> None:
        """Only ask the site: quick, as no other region is asked."""
        with contextlib.suppress(Exception):
            self._learn(self._site.tick(Tick(self.agent.name, {})))

    def run_round(self) -> None:
        """One round of the agent; what fails is tried again in the next."""
        with self._running:
            demand = self.watch.take()
            self.rounds += 1
            calls = self.agent.round(demand)
            try:
                self._drive(calls)
            except Exception as error:  # redis-py lets many kinds through
                self.failures += 1
                hidden = self._home.store.hide(self._site.store.hide(str(error)))
                logger.debug("region %s: %s", self.agent.region, hidden)
                self._judge(hidden)

    def _drive(self, calls: Round) -> None:
        answer: Any = None
        while True:
            try:
                call = calls.send(answer)
            except StopIteration:
                return
            answer = self._call(call)
            if isinstance(answer, SiteState):
                self._learn(answer)

    def _call(self, call: Tick | Take | Note | Apply | Ask) -> Any:
        if isinstance(call, Tick):
            try:
                return self._site.tick(call)
            except Exception:
                self.watch.put_back(dict(call.demand))
                raise
        if isinstance(call, Take):
            return self._site.take(call)
        if isinstance(call, Note):
            return self._site.note(call)
        if isinstance(call, Apply):
            return self._site.apply(call)
        return self._home.ask(call)

    # What it knows ------------------------------------------------------------------------

    def _learn(self, state: SiteState) -> None:
        self.granted = state.granted
        if state.heard:
            age = max(0, state.now - state.heard)
            self._heard = max(self._heard, self._clock.now() - age)
        if state.problem and state.problem != self.problem:
            logger.error("region %s: %s", self.agent.region, state.problem)
        self.problem = state.problem
        self._judge(state.problem or "the home does not answer")

    def _judge(self, reason: str) -> None:
        """Whether the site is cut off: the home was not heard for a third of a lease."""
        now = self._clock.now()
        silent = now - self._heard
        cut_off = silent > self.times.lease * MILLISECOND // 3
        if cut_off == self.is_cut_off:
            return
        self.is_cut_off = cut_off
        name = self._home_name
        if cut_off:
            self._cut_off_since = now - silent
            logger.warning(
                "region %s is cut off from its %s: it keeps its shares for %.1f s, then its"
                " floor: %s", self.agent.region, name, self.share_left, reason,
            )  # fmt: skip
            self._hooks.emit(StoreDown(name, reason))
        else:
            seconds = (now - self._cut_off_since) / SECOND
            logger.warning("region %s hears its %s again", self.agent.region, name)
            self._hooks.emit(StoreUp(name, seconds))
