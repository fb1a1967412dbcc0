"""A Django project: settings, jobs in its transactions, and `manage.py interlock`.

The project contains the blocks of the guide as they are.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest
from tests.waiting import PROGRAM_S

from interlock.django.management.commands.interlock import with_tasks
from interlock.testing.servers import PostgresServer

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "web-frameworks.md"
CHAPTER = GUIDE.read_text(encoding="utf-8").partition("## Django\n")[2]
SETTINGS, IN_A_TRANSACTION = re.findall(r"^```py\n(.*?)^```$", CHAPTER, re.S | re.M)

FILES = {
    "manage.py": """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
""",
    "site_settings.py": """
SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
"""
    + SETTINGS,
    "shop/__init__.py": "",
    "shop/models.py": """
from django.db import models

class Order(models.Model):
    customer = models.CharField(max_length=20, default="")
    paid = models.BooleanField(default=False)
""",
    "shop/tasks.py": """
from interlock import task
from shop.models import Order

@task
def charge(pk: int) -> str:
    Order.objects.filter(pk=pk).update(paid=True)
    return f"order {pk} is paid"

@task
def send_invoice(pk: int) -> str:
    return f"invoice for {Order.objects.get(pk=pk).customer}"
""",
    "shop/management/__init__.py": "",
    "shop/management/commands/__init__.py": "",
    "shop/management/commands/play.py": """
import json
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import transaction
from interlock.django import client, jobs
from shop.models import Order
from shop.tasks import charge

class Command(BaseCommand):
    def handle(self, **options):
        call_command("migrate", run_syncdb=True, verbosity=0)
        try:
            with transaction.atomic():
                order = Order.objects.create()
                jobs().submit(charge, order.pk)
                1 / 0
        except ZeroDivisionError:
            pass
        after_rollback = len(client().jobs()[0])
        with transaction.atomic():
            order = Order.objects.create()
            job_id = jobs().submit(charge, order.pk)
            before_commit = len(client().jobs()[0])
            transaction.on_commit(lambda: jobs().submit(charge, order.pk))
        self.stdout.write(json.dumps([after_rollback, before_commit, len(client().jobs()[0]), job_id]))
""",
    "shop/management/commands/order.py": """
from django.core.management.base import BaseCommand
from interlock.django import client
from shop.models import Order
from shop.tasks import send_invoice

class Command(BaseCommand):
    def handle(self, **options):
        customer = "Ada"
"""
    + indent(IN_A_TRANSACTION, 8 * " ")
    + """
        self.stdout.write(client().jobs()[0][0].id)
""",
    "shop/tests.py": """
from django.test import TestCase
from interlock.django import jobs
from shop.models import Order
from shop.tasks import charge

class OrderTest(TestCase):
    def test_an_order_is_charged(self):
        self.assertTrue(jobs().submit(charge, Order.objects.create().pk))
""",
    "shop/management/commands/paid.py": """
from django.core.management.base import BaseCommand
from shop.models import Order

class Command(BaseCommand):
    def handle(self, **options):
        self.stdout.write(str(list(Order.objects.values_list("paid", flat=True))))
""",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def manage(project: Path, *words: str, code: int = 0) -> str:
    answer = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=project,
        env={**os.environ, "NO_COLOR": "1", "INTERLOCK_URL": "sqlite:///of-another-project.db"},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert answer.returncode == code, answer.stdout + answer.stderr
    return answer.stdout if code == 0 else answer.stderr


def test_jobs_follow_the_transactions_of_the_project_and_its_worker_runs_them(project: Path) -> None:
    after_rollback, before_commit, after_commit, job_id = json.loads(manage(project, "play"))
    assert (after_rollback, before_commit, after_commit) == (0, 0, 2)
    invoice = manage(project, "order").strip()
    manage(project, "interlock", "worker", "start", "--burst")
    view = json.loads(manage(project, "interlock", "job", "show", job_id, "--json"))
    assert (view["state"], view["result"]) == ("COMPLETED", "order 1 is paid")
    view = json.loads(manage(project, "interlock", "job", "show", invoice, "--json"))
    assert (view["state"], view["result"]) == ("COMPLETED", "invoice for Ada")
    assert manage(project, "paid") == "[True, False]\n"
    assert not (project / "of-another-project.db").exists(), "the settings go before the environment"


@pytest.mark.long
def test_jobs_follow_the_transactions_of_a_project_on_postgresql_and_its_worker_runs_them(
    project: Path, postgres: PostgresServer
) -> None:
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": postgres.new_database_name(template="template0"),
        "USER": "postgres",
        "HOST": str(postgres.folder),
        "PORT": "5432",
    }
    with (project / "site_settings.py").open("a") as file:
        file.write(f"DATABASES = {{'default': {database!r}}}\n")
    manage(project, "interlock", "db", "migrate")
    after_rollback, before_commit, after_commit, job_id = json.loads(manage(project, "play"))
    assert (after_rollback, before_commit, after_commit) == (0, 0, 2)
    manage(project, "interlock", "worker", "start", "--burst")
    view = json.loads(manage(project, "interlock", "job", "show", job_id, "--json"))
    assert view["state"] == "COMPLETED"
    assert manage(project, "paid") == "[True]\n"


@pytest.mark.long  # the others have jobs in transactions
def test_the_first_job_of_a_process_may_follow_a_write_in_its_transaction(project: Path) -> None:
    manage(project, "migrate", "--run-syncdb")
    job_id = manage(project, "order").strip()
    assert json.loads(manage(project, "interlock", "job", "show", job_id, "--json"))["state"] == "PENDING"


@pytest.mark.long
def test_a_file_that_was_not_begun_as_a_store_serves_django_and_is_refused_for_jobs(project: Path) -> None:
    (project / "early_settings.py").write_text("from site_settings import *\nINTERLOCK = {}\n")
    manage(project, "migrate", "--run-syncdb", "--settings", "early_settings")
    assert manage(project, "paid") == "[]\n"
    assert "is the database of another program" in manage(project, "order", code=1)


@pytest.mark.long
def test_tests_of_the_project_submit_jobs_to_a_database_in_a_file(project: Path) -> None:
    stderr = manage(project, "test", code=1)
    assert "which no worker could open: it is in memory" in stderr
    with (project / "site_settings.py").open("a") as file:
        file.write("DATABASES['default']['TEST'] = {'NAME': 'test.sqlite3'}\n")
    manage(project, "test")
    assert not (project / "test.sqlite3").exists()


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"DATABSE": "default"}, "INTERLOCK in the settings has no key 'DATABSE'."),
        ({"DATABASE": "other"}, "INTERLOCK['DATABASE'] is 'other', which is not one of DATABASES."),
    ],
)
def test_invalid_django_settings_print_a_clear_error_without_a_traceback(
    project: Path, config: dict[str, str], sentence: str
) -> None:
    with (project / "site_settings.py").open("a") as file:
        file.write(f"INTERLOCK = {config!r}\n")
    stderr = manage(project, "interlock", "job", "list", code=2)
    assert sentence in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("given", "run"),
    [
        ("worker start", "worker start shop.tasks"),
        ("worker start --burst", "worker start shop.tasks --burst"),
        ("worker start other.tasks", "worker start other.tasks"),
        ("worker start --shell", "worker start --shell"),
        ("dev --open", "dev shop.tasks --open"),
        ("job list", "job list"),
    ],
)
def test_the_module_of_the_tasks_is_added_where_one_is_needed(given: str, run: str) -> None:
    assert with_tasks(given.split(), "shop.tasks") == run.split()
    assert with_tasks(given.split(), None) == given.split()


URLS = """
import json, sys
from django.conf import settings
databases = json.loads(sys.argv[1])
settings.configure(DATABASES=databases, INTERLOCK={"DATABASE": "default"})
from interlock.django import store_url
from interlock.errors import InterlockError
try:
    print(store_url())
except InterlockError as error:
    print(error.sentence)
"""
POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop"}


@pytest.mark.parametrize(
    ("database", "expected"),
    [
        ({"ENGINE": "django.db.backends.sqlite3", "NAME": "/srv/site.db"}, "sqlite:////srv/site.db"),
        (
            {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:a.db"},
            "The database 'default' is 'file:a.db', which no worker could open: it is in memory, or a URI.",
        ),
        (POSTGRES, "postgresql://localhost/shop"),
        (
            {**POSTGRES, "USER": "me", "PASSWORD": "a/b@c", "HOST": "db.example", "PORT": 6432},
            "postgresql://me:a%2Fb%40c@db.example:6432/shop",
        ),
        ({**POSTGRES, "HOST": "/run/postgresql", "USER": "me"}, "postgresql://me@/shop?host=/run/postgresql"),
        (
            {"ENGINE": "django.db.backends.mysql", "NAME": "shop"},
            "The database 'default' is django.db.backends.mysql; a store is PostgreSQL or SQLite.",
        ),
    ],
)
def test_a_database_of_django_is_the_store(database: dict[str, object], expected: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", URLS, json.dumps({"default": database})],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=True,
    )
    assert answer.stdout.strip() == expected
