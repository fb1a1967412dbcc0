"""What every store must do, as tests that anybody who writes a store can run on it.

A test module gives two things and gets the whole suite:

    from interlock.testing.store_contract import Traits, suite_for

    @pytest.fixture
    async def opener() -> AsyncIterator[StoreOpener]: ...

    globals().update(suite_for(Traits(shared=True, processes=True)))

and imports the fixture `store` from `interlock.testing.store_contract.fixtures`. For failures that
show their values, `pytest.register_assert_rewrite("interlock.testing.store_contract")` comes first.

No test names a database. What does not apply to a store, by its traits, is not collected.

Reading order:

    catalogue      the two small lifecycles that the suite plays with
    opener         what the suite needs to know about a store, and how it gets one
    builders       short words for commits, claims and their outcomes
    processes      real processes that work on the same database
    suite          which tests apply; then the tests, grouped by subject
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
