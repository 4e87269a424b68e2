"""Who may ask: tenants by their API keys, and what each may use.

Keys are kept as SHA-256 digests, so that a configuration that leaks, or a dump of the process,
shows none. The tenant decides the sharing domain; nothing in a request can.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import msgspec

from headwater.engine.units import parse_bytes, parse_pages
from headwater.errors import BadSetting

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SHORTEST_KEY = 16
"""Characters; shorter ones can be guessed."""


HIGHEST_PRIORITY = 1000


class Tenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    name: in metrics and logs.
    keys: API keys, in the clear or as "sha256:<hex of the key's digest>".
    domain: who shares KV with whom: tenants with equal domains do; the name when not given.
    max_requests: most that are unfinished at a time; more get a 429.
    kv_floor: KV memory that is evicted for this tenant's domain alone, "256MiB" or "400 pages".
    pin_memory: what its pins may take together; half of the KV memory when not given.
    priority: higher runs first.
    admin: may see the whole tree, replace weights and drain.
    """

    name: str
    keys: tuple[str, ...] = ()
    domain: str | None = None
    max_requests: int = 64
    kv_floor: str | int = 0
    pin_memory: str | int | None = None
    priority: int = 0
    admin: bool = False

    @property
    def has_floor(self) -> bool:
        return _amount(self.kv_floor) > 0

    @property
    def sharing(self) -> str:
        """The sharing domain."""
        return self.name if self.domain is None else self.domain


ANYONE = Tenant(name="default", domain="", max_requests=1024)
"""Who asks where no tenants are configured."""


class Tenants:
    """Finds a tenant by what a request brings. Reads nothing but its arguments."""

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        """Raises BadSetting for names or keys that make no sense."""
        self.all = tuple(tenants)
        self._by_digest: dict[str, Tenant] = {}
        names: set[str] = set()
        for tenant in self.all:
            if not _NAME.fullmatch(tenant.name) or tenant.name in names:
                raise BadSetting(
                    f"A tenant is named {tenant.name!r}; names are letters, digits, dots, dashes "
                    "and underscores, each given once."
                )
            if not tenant.keys:
                raise BadSetting(f"Tenant {tenant.name} has no keys; give it one.")
            _check(tenant)
            names.add(tenant.name)
            for key in tenant.keys:
                digest = _digest_of(tenant.name, key)
                if digest in self._by_digest:
                    raise BadSetting(f"Tenant {tenant.name} has the key of another one.")
                self._by_digest[digest] = tenant

    @property
    def is_open(self) -> bool:
        """No keys are asked for."""
        return all(tenant.admin for tenant in self.all)

    def named(self, name: str) -> Tenant | None:
        known = (*self.all, ANYONE) if self.is_open else self.all
        return next((tenant for tenant in known if tenant.name == name), None)

    def of(self, key: str | None) -> Tenant | None:
        """Whose key this is; None when nobody's. Where no tenants are configured all are one."""
        if key is not None:
            # A digest is looked up, not compared: how long that takes tells nothing about the key.
            tenant = self._by_digest.get(hashlib.sha256(key.encode(errors="replace")).hexdigest())
            if tenant is not None:
                return tenant
        return ANYONE if self.is_open else None


def _amount(size: str | int) -> int:
    """Bytes, or pages where it says so."""
    pages = parse_pages(size)
    return parse_bytes(size) if pages is None else pages


def _check(tenant: Tenant) -> None:
    """Raises BadSetting for what would make the tenant's requests fail one by one."""
    if _amount(tenant.kv_floor) < 0 or parse_bytes(tenant.pin_memory or 0) < 0:
        raise BadSetting(f"A size of tenant {tenant.name} is negative.")
    if tenant.max_requests < 1:
        raise BadSetting(f"Tenant {tenant.name} has max_requests under 1 and could ask nothing.")
    if abs(tenant.priority) > HIGHEST_PRIORITY:
        raise BadSetting(
            f"The priority of tenant {tenant.name} must lie in "
            f"[-{HIGHEST_PRIORITY}, {HIGHEST_PRIORITY}]."
        )


def _digest_of(name: str, key: str) -> str:
    hashed = _DIGEST.fullmatch(key)
    if hashed:
        return hashed[1]
    if len(key) < SHORTEST_KEY:
        raise BadSetting(f"A key of tenant {name} is shorter than {SHORTEST_KEY} characters.")
    return hashlib.sha256(key.encode()).hexdigest()
