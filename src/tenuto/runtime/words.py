"""Words of a closed set, as callers give them."""

from tenuto.argument import word_of

__all__ = ["word_of"]
