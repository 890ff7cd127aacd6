"""The signals between a transaction and the one who runs it; no caller sees them."""


class Missed(Exception):
    """A guarded write hit nothing, or a row that had to be new was there: look again and decide again."""


class Refused(Exception):
    """A rule has refused: nothing was written, so whatever else is in the transaction may stand."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error
