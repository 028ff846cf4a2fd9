"""Stands in for a service on the network that tells in which square of the map a place lies.

It answers by arithmetic, and so that there is something to retry it says "busy" to the first
attempt at one place in 500. Which ones depends on their codes alone, so everybody sees the same.
"""

from __future__ import annotations

import zlib


class GeocoderBusy(Exception):
    """The service did not answer this time."""


def square_of(code: str, latitude: float, longitude: float, *, attempt: int) -> str:
    """Return a place's square in the Maidenhead system, such as ``JO01``.

    :raises GeocoderBusy: Another attempt may succeed.
    """
    if attempt == 1 and zlib.crc32(code.encode()) % 500 == 0:
        raise GeocoderBusy(f"The geocoder was too busy for {code}.")
    # The poles and the date line belong to the last square rather than to one of their own.
    east, north = min((longitude + 180) / 2, 179.999), min(latitude + 90, 179.999)
    field = chr(65 + int(east // 10)) + chr(65 + int(north // 10))
    return f"{field}{int(east % 10)}{int(north % 10)}"
