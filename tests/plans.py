"""How the server carries out what a part of the store asks: the plan of every command sent."""

from __future__ import annotations

import typing as t

from pymongo.monitoring import CommandListener

if t.TYPE_CHECKING:
    from pymongo.database import Database
    from pymongo.monitoring import CommandFailedEvent, CommandStartedEvent, CommandSucceededEvent

EXPLAINED = {"find", "aggregate", "count", "distinct", "update", "delete", "findAndModify"}
NOT_EXPLAINED = {"lsid", "txnNumber", "maxTimeMS", "writeConcern", "bulkWrite", "ordered"}


class Plan(t.NamedTuple):
    """What one command came to.

    :param stages: The stages of the plan, and of the pipeline behind it.
    :param documents: How many documents were read for it.
    """

    command: dict[str, t.Any]
    stages: list[str]
    keys: int
    documents: int


class Recorder(CommandListener):
    """Keeps the commands that a client sends."""

    def __init__(self) -> None:
        self.commands: list[dict[str, t.Any]] = []

    def started(self, event: CommandStartedEvent) -> None:
        """Keep a command as it was sent."""
        if event.command_name in EXPLAINED:
            self.commands.append(
                {
                    key: value
                    for key, value in event.command.items()
                    if not key.startswith("$") and key not in NOT_EXPLAINED
                }
            )

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Nothing: only what was asked counts."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Nothing: only what was asked counts."""

    def plans(self, database: Database[dict[str, t.Any]]) -> list[Plan]:
        """Return the plan of each command sent since the last call."""
        commands, self.commands = self.commands, []
        return [_plan(database, command) for command in commands]


def _plan(database: Database[dict[str, t.Any]], command: dict[str, t.Any]) -> Plan:
    explained = database.command("explain", command, verbosity="executionStats")
    pipeline = explained.get("stages", [])
    at = pipeline[0]["$cursor"] if pipeline else explained
    return Plan(
        command,
        [
            *_stages(at["queryPlanner"]["winningPlan"]),
            *[name for stage in pipeline for name in stage if name.startswith("$")],
        ],
        at["executionStats"]["totalKeysExamined"],
        at["executionStats"]["totalDocsExamined"],
    )


def _stages(plan: object) -> t.Iterator[str]:
    if isinstance(plan, dict):
        if "stage" in plan:
            yield plan["stage"]
        for value in plan.values():
            yield from _stages(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _stages(value)
