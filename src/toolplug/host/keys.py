"""The keys of a host: the one that seals what must stay secret, and the one with which a person decides without `auth`.

The first seals what the host or a provider keeps where others could read or change it. `key:` gives it, or it is made
at its first use in `host.key`, next to the store's file. The first key seals, every key opens. The fingerprint of the
key that seals is kept in the store:

`host-key`  the fingerprint, 16 hex digits

A process whose keys do not include that one could not read what the others seal, so it does not start.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from hmac import compare_digest
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Annotated, NamedTuple, Protocol, Self, cast

from pydantic import AfterValidator, Discriminator, Field, SecretStr, Tag

from toolplug.config.units import FileMapping, shape_error
from toolplug.errors import HostKeyError, StoreConflict, StoreError, Unsealable
from toolplug.host.private_file import KEY_TEXT, make_private, new_key, read_private, replace_private
from toolplug.runtime.threads import in_own_thread
from toolplug.stores.store import Store

FILE = "host.key"
"""In the state folder of the host, readable for its user alone: a key a line, the one that seals first."""
MOST_KEYS = 8
"""Each opens what it has sealed; a key of eight rotations ago has nothing left that has not expired."""

_LINES = re.compile(rf"{KEY_TEXT.pattern}(\s+{KEY_TEXT.pattern}){{0,{MOST_KEYS - 1}}}")
_RECORD = "host-key"
_NONCE_BYTES = 12  # of AES-GCM; random ones repeat after 2**48 values, far more than a store has
_ID_BYTES = 4
_VERSION = b"\1"
_LOOK_S = 1.0
_WANTED = f"it must be a file of this user alone (chmod 600) with a key of 43 characters a line, at most {MOST_KEYS}"
_HEAD = len(_VERSION) + _ID_BYTES
_MAKE_ONE = "toolplug key rotate --show"
SET_KEY = f'set key: "${{TOOLPLUG_KEY}}" to what `{_MAKE_ONE}` prints, or key: {{file: PATH}}'


class KeyFile(FileMapping):
    """The file of the host's keys, one a line."""

    file: Annotated[str, Field(min_length=1, description="made at its first use; a key a line, the first one seals")]


def _key_text(key: SecretStr) -> SecretStr:
    if not KEY_TEXT.fullmatch(key.get_secret_value()):
        raise shape_error(f"32 random bytes as URL-safe Base64, which is 43 characters; `{_MAKE_ONE}` makes one")
    return key


def _form_of(value: object) -> str:
    """Return which form a value of `key` has, so that its errors are of this one."""
    return "file" if isinstance(value, dict | KeyFile) else "list" if isinstance(value, list | tuple) else "text"


_KeyText = Annotated[SecretStr, AfterValidator(_key_text)]
_KeyTexts = Annotated[tuple[_KeyText, ...], Field(strict=False, min_length=1, max_length=MOST_KEYS)]
KeySetting = Annotated[
    Annotated[_KeyText, Tag("text")] | Annotated[_KeyTexts, Tag("list")] | Annotated[KeyFile, Tag("file")],
    Discriminator(_form_of),
]
"""A key, several of which the first one seals and all open, or the file that has them."""


class Sealer:
    """Seals bytes for one purpose, so that they can be kept where others could read or change them.

    What is sealed for another purpose, with other `bound` bytes, or by a host with other keys is not opened.

    ```python
    import asyncio
    import tempfile

    from toolplug import FunctionProvider, Sealer, open_host, tool

    class Notes(FunctionProvider):
        async def start(self, site) -> None:
            self.sealer: Sealer = await site.sealer()

        @tool
        def seal(self, text: str) -> bool:
            "Seal a text and open it again."
            sealed = self.sealer.seal(text.encode(), b"note 1")
            return self.sealer.unseal(sealed, b"note 1") == text.encode()

    async def main():
        async with open_host({"store": "memory://"}, providers=[Notes]) as host:
            assert (await host.registry.call("seal", text="milk")).output == "true"

    asyncio.run(main())
    ```
    """

    def __init__(self, keys: Callable[[], Sequence[bytes]], again: Callable[[], None], purpose: str) -> None:
        self._keys = keys
        self._again = again
        self._purpose = b"toolplug seal " + purpose.encode()

    def seal(self, data: bytes, bound: bytes = b"") -> bytes:
        """Return the data sealed by AES-256-GCM, 33 bytes longer; `bound` is needed again to open it."""
        key = self._keys()[0]
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + _id_of(key) + nonce + self._cipher(key).encrypt(nonce, data, bound)

    def unseal(self, sealed: bytes, bound: bytes = b"") -> bytes:
        """Return the data. Raises `Unsealable` for what was changed, or sealed elsewhere or for something else."""
        key = self._key_of(sealed)
        if key is None:
            self._again()  # another process may have rotated the keys
            key = self._key_of(sealed)
        if key is None:
            raise Unsealable("sealed with a key that this host does not have; `key` must list the one it had then")
        nonce, rest = sealed[_HEAD : _HEAD + _NONCE_BYTES], sealed[_HEAD + _NONCE_BYTES :]
        try:
            return self._cipher(key).decrypt(nonce, rest, bound)
        except (ValueError, import_module("cryptography.exceptions").InvalidTag):
            raise Unsealable("changed since it was sealed, or sealed for something else") from None

    def digest(self, data: bytes) -> str:
        """Return 64 hex digits that nobody without the keys can compare with guesses.

        They are by the oldest key, so that a rotation does not change them.
        """
        return hmac.digest(hmac.digest(self._keys()[-1], b"digest of " + self._purpose, "sha256"), data, "sha256").hex()

    def _key_of(self, sealed: bytes) -> bytes | None:
        return next((key for key in self._keys() if sealed[:_HEAD] == _VERSION + _id_of(key)), None)

    def _cipher(self, key: bytes) -> _Cipher:
        # A key for each purpose: what a plugin seals cannot be passed off as what another one has sealed.
        derived = hmac.digest(key, self._purpose, "sha256")
        # Imported at the first use: it takes 40 ms, and most hosts seal nothing.
        return import_module("cryptography.hazmat.primitives.ciphers.aead").AESGCM(derived)


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None, /) -> bytes: ...
    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None, /) -> bytes: ...


def _id_of(key: bytes) -> bytes:
    return hashlib.sha256(b"toolplug key id " + key).digest()[:_ID_BYTES]


class HostKey:
    """The keys of one host, read or made when something is first sealed or opened.

    `setting` returns the present value of `key`, whose paths are relative to `folder`. Without one a key is made in
    `made_in`, None for a store in memory, whose key is in memory too. `given`: none is made, since each process of the
    store needs the same one and not all of them see one folder.
    """

    def __init__(
        self, setting: Callable[[], object], store: Store, folder: Path, made_in: Path | None, *, given: bool
    ) -> None:
        self._setting = setting
        self._store = store
        self._folder = folder
        self._made_in = made_in
        self._given = given
        self._in_memory = new_key()
        self._keys: tuple[bytes, ...] = ()
        self._look_at = 0.0
        self._opening = asyncio.Lock()

    async def begin(self, *, needed: bool) -> None:
        """Open the keys that the file names, or that are `needed`; any others when they are. Raises like `open`."""
        if needed or self._setting() is not None:
            await self.open()

    async def sealer(self, purpose: str) -> Sealer:
        """Return what seals for this purpose. Raises `HostKeyError` and `StoreError`."""
        if find_spec("cryptography") is None:
            raise HostKeyError("the host's key seals with cryptography: pip install 'toolplug[auth]'")
        await self.open()
        return Sealer(lambda: self._keys, self._look_again, purpose)

    async def digest(self, purpose: str, data: bytes) -> str:
        """Return `Sealer.digest` for this purpose, which needs no package. Raises `HostKeyError` and `StoreError`."""
        await self.open()
        return Sealer(lambda: self._keys, self._look_again, purpose).digest(data)

    async def open(self) -> None:
        """Read or make the keys once, and compare them with those of the store. Raises `HostKeyError`, `StoreError`."""
        async with self._opening:
            if self._keys:
                return
            keys = await in_own_thread(self._read)
            await self._compare(keys)
            self._keys = keys

    async def read_again(self) -> None:
        """Read the keys again after a reload, and let the store know which one seals; keeps them if that fails."""
        if self._keys:
            with suppress(HostKeyError):
                keys = await in_own_thread(self._read)
                with suppress(StoreError):  # a later start lets it know
                    await self._compare(keys)
                self._keys = keys

    def _look_again(self) -> None:
        """Read the keys again after a rotation by another process.

        At most once a second: who sends what nobody has sealed must not have files read.
        """
        now = monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            with suppress(HostKeyError):
                self._keys = self._read()

    def _read(self) -> tuple[bytes, ...]:
        setting = self._setting()
        if isinstance(setting, SecretStr):
            setting = (setting,)
        if isinstance(setting, tuple):
            return tuple(decode_key(key.get_secret_value()) for key in cast("tuple[SecretStr, ...]", setting))
        if isinstance(setting, KeyFile):
            file = self._folder / setting.file
        elif self._made_in is None:
            return (decode_key(self._in_memory),)
        else:
            file = self._made_in / FILE
        if self._given and setting is None:
            raise HostKeyError(f"key is not set, and the processes of this store need the same one: {SET_KEY}")
        try:
            text = _read_file(file) or make_private(file, new_key(), _LINES)
        except OSError as error:
            raise HostKeyError(f"the host's key {file} can be neither read nor made: {error}; {_WANTED}") from None
        return tuple(decode_key(line) for line in text.split())

    async def _compare(self, keys: Sequence[bytes]) -> None:
        """Raise `HostKeyError` unless these keys open what the other processes of the store seal."""
        own = [_id_of(key).hex() for key in keys]
        while True:
            record = await self._store.read(_RECORD)
            last = None if record is None else record.value.decode("latin-1")
            if last is not None and last not in own:
                raise HostKeyError(
                    f"key is not that of this store: it has {', '.join(own)}, and the store was last sealed with"
                    f" {last}; list that one, too: the newest key first, former ones after it"
                )
            if last == own[0]:
                return
            # Of processes that start at once with different keys, the second one is refused.
            with suppress(StoreConflict):
                await self._store.commit(_RECORD, own[0].encode(), expected=0 if record is None else record.revision)


def decode_key(text: str) -> bytes:
    return base64.urlsafe_b64decode(f"{text}=")


def _read_file(file: Path) -> str:
    """Return the text of the file, empty if there is none. Raises `HostKeyError` for one that holds no keys."""
    text = read_private(file, _LINES)
    # What is there is not replaced because it cannot be read: it may be all that opens what was sealed.
    if text is None and os.path.lexists(file):
        text = read_private(file, _LINES)  # another process may have made it meanwhile
        if text is None:
            raise HostKeyError(f"the host's key {file} cannot be read; {_WANTED}")
    return text or ""


def rotate_keys(file: Path) -> int:
    """Put a new key before those of the file, and return how many it has now. Raises `HostKeyError`."""
    keys = [new_key(), *_read_file(file).split()][:MOST_KEYS]
    try:
        replace_private(file, "\n".join(keys))
    except OSError as error:
        raise HostKeyError(f"the host's key {file} cannot be written: {error}") from None
    return len(keys)


DECISION_FILE = "decide.key"
"""In the state folder of the host, readable for its user alone."""

HEADER = "X-Toolplug-Decide"
"""The header of a request that decides."""

_LOG = logging.getLogger("toolplug.host")


class DecisionKey(NamedTuple):
    """The key as text, and the file that holds it; None for a host without files, whose key is in memory only."""

    text: str
    file: Path | None

    @classmethod
    def open(cls, folder: Path | None) -> Self:
        """Return the key of the file in this folder, which is made if there is no valid one; blocks.

        The processes of one folder have the same key. If the file cannot be written, it is in memory, with a warning.
        """
        made = new_key()
        if folder is None:
            return cls(made, None)
        file = folder / DECISION_FILE
        try:
            return cls(read_private(file, KEY_TEXT) or make_private(file, made, KEY_TEXT), file)
        except OSError as error:
            _LOG.warning("the decision key is kept in memory only, as %s cannot be written: %s", file, error)
            return cls(made, None)

    @property
    def header(self) -> str:
        """The line to send with a decision."""
        return f"{HEADER}: {self.text}"

    def matches(self, given: bytes | None) -> bool:
        """Return whether this is the key; takes the same time for every wrong one of its length."""
        return given is not None and compare_digest(self.text.encode(), given)
