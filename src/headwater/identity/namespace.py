"""The namespace: the secret-keyed root under which prompts can meet.

Two requests share KV only if contract, sharing domain and salt are equal. The key is a keyed hash,
so that who does not know the secret can neither compute a key nor tell from one which tenant or
salt it belongs to; and it is the root of every chunk name, so a name leaks as little.
"""

from __future__ import annotations

from hashlib import blake2b

from headwater.identity.framing import frame

SECRET_BYTES = 32
KEY_BYTES = 32

# Separates this use of the secret from every other one (BLAKE2's personalisation, RFC 7693).
_USE = b"headwater.ns/1"


class Namespaces:
    """The namespaces of one secret. Equal secrets give equal keys, in any process."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        """Bind a secret of 32 bytes. Raises ValueError for another length."""
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the secret must have {SECRET_BYTES} bytes, not {len(secret)}")
        self._secret = secret

    def key(self, contract: bytes, domain: str, salt: str) -> bytes:
        """The key (32 bytes) of a namespace.

        contract: its digest (`KVContract.digest`), which one who asks often computes once.
        domain: who may share, derived from the authenticated tenant and never from the request.
        salt: the caller's own narrowing of the domain; it cannot widen it, since the domain is
        hashed as a field of its own.
        """
        fields = frame([contract, domain, salt])
        return blake2b(fields, digest_size=KEY_BYTES, key=self._secret, person=_USE).digest()
