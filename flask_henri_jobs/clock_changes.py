"""From the readings of a wall clock to moments, on the days when the clock is changed too (S5).

croniter could be given a time zone. It would then fire a pattern such as ``*/15 2 * * *`` in an
hour that does not exist, and leaves out others that do; the rules here are our own.
"""

from __future__ import annotations

import heapq
import typing as t
from bisect import bisect_left
from datetime import UTC, datetime, timedelta, tzinfo

if t.TYPE_CHECKING:
    from collections.abc import Iterator

    from .cron import Cron

Mark: t.TypeAlias = t.Literal["", "skipped hour", "repeated hour"]


class Moment(t.NamedTuple):
    """A moment at which something is due.

    :param at: The moment, in UTC.
    :param mark: What a change of the clock has to do with it. ``skipped hour``: it stands for a
        reading that the clock leaves out that day. ``repeated hour``: the clock reads so twice.
    """

    at: datetime
    mark: Mark


def moments_after(cron: Cron, zone: tzinfo, now: datetime) -> Iterator[Moment]:
    """Yield the moments at which an expression is due, in their order, each later than ``now``.

    A reading that does not exist is due once, at the first moment after the gap; of a minutely
    pattern only if a part of that hour exists. A reading that comes twice is due the first time,
    of an hourly or minutely pattern both times (S5).
    """
    reading = now.astimezone(zone).replace(second=0, microsecond=0, tzinfo=None, fold=0)
    latest = now
    waiting: list[Moment] = []
    for due in cron.readings_after(reading - max(-_shift(reading, zone), timedelta(0))):
        for moment in (found := _moments(cron, zone, due)):
            heapq.heappush(waiting, moment)
        # The first moments of later readings come no earlier than this one's. Its second one may
        # come after theirs, and waits.
        while found and waiting and waiting[0].at <= found[0].at:
            moment = heapq.heappop(waiting)
            if moment.at > latest:
                latest = moment.at
                yield moment


def _moments(cron: Cron, zone: tzinfo, reading: datetime) -> list[Moment]:
    shift = _shift(reading, zone)
    if not shift:
        return [Moment(_at(reading, zone), "")]
    if shift < timedelta(0):
        passes = (0, 1) if cron.is_minutely or cron.is_hourly else (0,)
        return [Moment(_at(reading, zone, fold), "repeated hour") for fold in passes]
    if cron.is_minutely and _is_whole_hour_skipped(reading, zone):
        return []
    return [Moment(_end_of_gap(reading, zone), "skipped hour")]


def _shift(reading: datetime, zone: tzinfo) -> timedelta:
    """Return by how much the clock is changed around a reading.

    :return: Positive where the clock skips the reading, negative where it shows it twice.
    """
    first, second = (reading.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    return _offset(second) - _offset(first)


def _offset(local: datetime) -> timedelta:
    return t.cast("timedelta", local.utcoffset())


def _at(reading: datetime, zone: tzinfo, fold: int = 0) -> datetime:
    return reading.replace(tzinfo=zone, fold=fold).astimezone(UTC)


def _is_whole_hour_skipped(reading: datetime, zone: tzinfo) -> bool:
    ends = (reading.replace(minute=0), reading.replace(minute=59))
    return all(_shift(end, zone) > timedelta(0) for end in ends)


def _end_of_gap(reading: datetime, zone: tzinfo) -> datetime:
    # A zone does not tell when it changes. Within a gap the later offset gives a moment before the
    # change and the earlier offset one after it; between the two the offset grows, once.
    before, after = _at(reading, zone, fold=1), _at(reading, zone, fold=0)
    seconds_to_change = bisect_left(
        range(int((after - before).total_seconds())),
        _offset(after.astimezone(zone)),
        key=lambda second: _offset((before + timedelta(seconds=second)).astimezone(zone)),
    )
    return before + timedelta(seconds=seconds_to_change)
