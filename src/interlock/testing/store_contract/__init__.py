"""The contract of a store, as tests that the author of a store can run on it.

A test module defines two things and gets the whole suite:

    from interlock.testing.store_contract import Traits, suite_for

    @pytest.fixture
    async def opener() -> AsyncIterator[StoreOpener]: ...

    globals().update(suite_for(Traits(shared=True, processes=True)))

and imports the fixture `store` from `interlock.testing.store_contract.fixtures`. For failures that
show their values, `pytest.register_assert_rewrite("interlock.testing.store_contract")` comes first.

No test names a database. Tests that do not apply to a store, by its traits, are not collected.

Reading order:

    builders       the lifecycles of the suite, and short builders for commits, claims and queries
    suite          the traits of a store, how to open it, and the tests that apply
    fixtures       the fixture `store`
    processes      real processes that use the same database
    commit         the tests, one module for each subject
"""

from interlock.testing.store_contract.builders import CATALOGUE
from interlock.testing.store_contract.suite import (
    DatabaseOpener,
    RecordTable,
    StoreOpener,
    Traits,
    suite_for,
)

__all__ = ["CATALOGUE", "DatabaseOpener", "RecordTable", "StoreOpener", "Traits", "suite_for"]
