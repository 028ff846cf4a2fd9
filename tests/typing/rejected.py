"""What a type checker must refuse: each line that is marked, and no other.

``test_typing.py`` runs mypy and pyright over it. Nothing here is ever run.
"""

from __future__ import annotations

from datetime import datetime

from flask_henri_jobs import HenriJobs, Job, Retry, Snooze, Task, current_job

jobs = HenriJobs()


@jobs.task
def add(a: int, b: int = 2) -> int:
    return a + b


@jobs.task(queue="mail")
def mail(user_id: int, *, subject: str = "Hello") -> None: ...


@jobs.task
async def fetch(url: str) -> bytes:
    return url.encode()


@jobs.task(rate={"limit": "100/m", "key": "address"})
def look_up(address: str) -> None: ...


# Arguments are those of the function.
add.delay("x")  # error
add.delay()  # error
add.delay(1, 2, 3)  # error
add.delay(1, c=2)  # error
add.delay(a=1, b="2")  # error
mail.delay(7, "Hi")  # error
mail.delay("seven")  # error
fetch.delay(7)  # error
look_up.delay(7)  # error
look_up.using(rate="100/m")  # error
add("x")  # error
total: str = add(1, 2)  # error
number: int = add.delay(1, 2)  # error
body: bytes = fetch("http://localhost")  # error

# So are they behind options.
add.using(wait="5m").delay("x")  # error
add.using(wait="5m").using(queue="low").delay(1, c=2)  # error
mail.using(priority=1).delay()  # error

# Options of an enqueue.
mail.using(que="x")  # error
mail.using(queue=7)  # error
mail.using(priority="high")  # error
mail.using(max_attempts=2.5)  # error
mail.using(at="2030-01-01")  # error
mail.using(wait=datetime(2030, 1, 1))  # error
mail.using(on_conflict="ignore")  # error
mail.using(unique=True)  # error
mail.using(timeout=datetime(2030, 1, 1))  # error
mail.using(id=7)  # error
mail.using(tags="order:42")  # error
jobs.task(redact="email")  # error
jobs.task(store_result="yes")  # error
mail.using("low")  # error
mail.using(countdown=60)  # error
mail.using(queue="low").using(que="x")  # error

# Celery's way.
add.apply_async(1, 2)  # error
add.apply_async((1, 2), eta="2030-01-01")  # error
add.apply_async((1, 2), countdown=datetime(2030, 1, 1))  # error
add.apply_async((1, 2), que="x")  # error
add.apply_async((1, 2), [3])  # error

# Many, and by name.
add.delay_many([1, 2])  # error
add.delay_many({"a": 1})  # error
ids: list[str] = add.delay_many([{"a": 1}])  # error
jobs.enqueue(add)  # error
jobs.enqueue("mail", que="x")  # error
jobs.enqueue("mail", {"user_id": 7}, "low")  # error

# Options of a task.
jobs.task(que="x")  # error
jobs.task(queue=7)  # error
jobs.task(max_retries=3)  # error
jobs.task(max_attempts="3")  # error
jobs.task(unique=7)  # error
jobs.task(unique=(1, 2))  # error
jobs.task(expires=datetime(2030, 1, 1))  # error
jobs.task(timeout=["30s"])  # error
jobs.task(retry_on="ValueError")  # error
jobs.task(discard_on=ValueError("x"))  # error
jobs.task(backoff="5s")  # error
jobs.task(rate=100)  # error
jobs.task(rate=("100/m", "1000/h"))  # error
jobs.task(rate={7: "100/m"})  # error
jobs.task("mail")  # error

# The operator's questions.
jobs.get(7)  # error
jobs.list(limit="10")  # error
jobs.list(sate="dead")  # error
jobs.count(state={"$ne": "done"})  # error
jobs.retry(None)  # error
jobs.pause("mail")  # error
jobs.pause(queue=7)  # error
jobs.resume(task="mail")  # error
jobs.cancel(7)  # error
jobs.run_worker(True)  # error
jobs.run_worker(threads="2")  # error

# What is read, and what is raised.
current_job.atempt  # error
current_job.set_progress("half")  # error
current_job.set_progress()  # error
Retry(wait=datetime(2030, 1, 1))  # error
Snooze()  # error
HenriJobs("shop")  # error
HenriJobs(client="mongodb://localhost")  # error


def looks(job: Job) -> None:
    job.id.days  # error
    job.finished_at.year  # error
    job.duration.total_seconds()  # error
    job.sate  # error
    job.wait(datetime(2030, 1, 1))  # error


def passes_on(task: Task[[int], str]) -> None:
    task.delay("x")  # error


passes_on(fetch)  # error

# A batch's jobs have the arguments of their functions.
jobs.batch().add(add, "x")  # error
jobs.batch().add(mail.using(priority=5), "seven")  # error
jobs.batch().add("add", 1)  # error
jobs.batch(calback=add)  # error
jobs.batches.list(status="open")  # error
