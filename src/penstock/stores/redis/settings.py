"""What all parts of one store share."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from penstock.clock import Clock
from penstock.events import Event, Hooks, StoreDown, StoreUp
from penstock.stores.redis.address import Target
from penstock.stores.redis.fallback import Fallback
from penstock.stores.redis.script import Script

logger = logging.getLogger("penstock.redis")


@dataclass
class Settings:
    """Created once, by the store; the parts hold this and not the store."""

    target: Target
    deadline: float  # seconds
    connect_timeout: float
    max_pending: int
    script: Script
    clock: Clock
    hooks: Hooks
    fallback: Fallback

    def emit(self, event: Event) -> None:
        """Log what happens to the servers, and call the hooks."""
        if isinstance(event, StoreDown):
            logger.warning("%s is not asked any more: %s", event.store, event.reason)
        elif isinstance(event, StoreUp):
            logger.warning("%s is asked again after %.3f s", event.store, event.seconds)
        self.hooks.emit(event)

    def hide(self, text: str) -> str:
        """``text`` without the store's passwords."""
        for address in self.target.addresses:
            if password := address.settings.get("password"):
                text = text.replace(str(password), "***")
        return text
