"""The signals between a transaction and the one who runs it; no caller sees them."""

from collections.abc import Callable

from tenuto.errors import InvalidInput, StoreContended, TenutoError


class GuardMissed(Exception):
    """A guarded write hit nothing, or a row that had to be new was there: read and decide again.

    `taken` names the columns of that row's key. If reading again does not help, somebody else uses its id.
    """

    def __init__(self, what: str, taken: str | None = None) -> None:
        super().__init__(what)
        self.taken = taken

    def as_error(self) -> TenutoError:
        """Return the caller's error for when reading again did not help."""
        if self.taken:
            return InvalidInput(f"An id given for {self.taken} is used already; give another one.", taken=self.taken)
        return StoreContended("Others kept changing what was found; repeat the call unchanged.")


class Translating:
    """The context in which a driver's errors become ours: those for which `translate` returns another one."""

    __slots__ = ("_translate",)

    def __init__(self, translate: Callable[[BaseException], BaseException]) -> None:
        self._translate = translate

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None and (ours := self._translate(error)) is not error:
            raise ours from error


class Refused(Exception):
    """A rule has refused: nothing was written, so whatever else is in the transaction may stand."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error
