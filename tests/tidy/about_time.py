"""What in tests is about time itself, and why; `test_no_test_races.py` refuses all else."""

from __future__ import annotations

from collections.abc import Mapping

VIRTUAL = "its time is virtual and passes at once"
HANDLER = "a program that a test runs as somebody's work"
POLLS = "a program that waits for a file of the test, however long that takes"
AHEAD = "a clock that the test sets days or hours ahead"
LOOKS_AGAIN = "it looks again after that, and nothing is judged by it"
IN_VAIN = "a wait that has to be in vain; a slow machine only makes it longer"
EXPIRY = "the timeout of a handler, whose expiry is the subject"
GROWS = "the longer it takes, the more is allowed"
TWO_CLOCKS = "it compares two clocks, in an order that no pause can change"
STANDS_STILL = "processes stand still for real, and are judged only afterwards"
REFUSED = "a text that another rule refuses"

ABOUT_TIME: Mapping[str, Mapping[str, str]] = {
    "agent/controller.py": {
        "now_ns": "an instant that is sent, of which no time is measured",
    },
    "agent/household.py": {
        "Household.monotonic_ns": VIRTUAL,
    },
    "agent/test_load.py": {
        "make": VIRTUAL,
        "taking": VIRTUAL,
        "test_the_latency_of_an_operation_that_waits_for_a_lane_is_measured_from_its_due_time": VIRTUAL,
        "test_operations_that_were_due_and_never_began_are_counted": VIRTUAL,
        "test_an_operation_that_never_pauses_leaves_others_a_turn": VIRTUAL,
    },
    "agent/test_outbox.py": {
        "test_the_outbox_reports_running_periodically_while_a_workload_sends_no_samples": VIRTUAL,
        "test_the_outbox_reports_nothing_while_a_workload_stays_ready": VIRTUAL,
    },
    "agent/test_state.py": {
        "until": VIRTUAL,
        "preparing": VIRTUAL,
        "test_an_agent_is_ready_until_the_instant_also_while_its_process_prepares": VIRTUAL,
        "test_an_abort_while_it_prepares_leads_from_ready_to_idle_and_nothing_is_left": VIRTUAL,
        "test_an_agent_is_not_idle_until_the_prepared_process_of_an_aborted_workload_ends": VIRTUAL,
        "test_a_wall_clock_that_is_set_while_ready_does_not_move_the_start": VIRTUAL,
        "test_a_second_start_request_replaces_the_start_time_of_the_first": VIRTUAL,
        "test_a_workload_that_is_not_started_is_given_up_after_the_wait": VIRTUAL,
        "test_an_unresponsive_workload_is_terminated_after_5_seconds_and_killed_after_15": VIRTUAL,
        "test_an_agent_is_not_idle_while_something_has_survived": VIRTUAL,
        "test_timers_of_an_old_workload_touch_no_new_one": VIRTUAL,
    },
    "agent/workloads/odd.py": {
        "stubborn": POLLS,
        "Tidy.__call__": HANDLER,
    },
    "cli/test_killed_controller.py": {
        "settle": AHEAD,
    },
    "cli/test_simulation_run.py": {
        "MODEL": POLLS,
        "test_a_second_ctrl_c_kills_a_step_that_does_not_end": POLLS,
    },
    "couplings/world.py": {
        "VirtualClock.__call__": VIRTUAL,
        "Worker.is_at": VIRTUAL,
        "comes": VIRTUAL,
    },
    "fixtures/stores/make.py": {
        "fill": "a program that is no test, and waits for another one",
    },
    "fixtures/stores/shop.py": {
        "nap": HANDLER,
    },
    "journeys/courses.py": {
        "wait_for": POLLS,
        "waiting": POLLS,
    },
    "journeys/crew.py": {
        "Stir.until": LOOKS_AGAIN,
        "Worker.end": "after it only the last lines of its log are missing",
    },
    "journeys/errands.py": {
        "pass_through": POLLS,
        "jot_slowly": HANDLER,
        "deaf_thread": POLLS,
        "compute": POLLS,
        "orphanage": POLLS,
    },
    "journeys/test_a_worker_is_asked_to_go.py": {
        "SLOW_TO_IMPORT": POLLS,
    },
    "journeys/test_standing_still.py": {
        "standing_still": STANDS_STILL,
        "test_a_worker_that_stands_still_in_its_shutdown_gives_its_work_back": STANDS_STILL,
    },
    "journeys_http/test_runs_both_ways.py": {
        "test_a_run_that_no_worker_can_execute_is_canceled": IN_VAIN,
    },
    "journeys_http/test_standing_still.py": {
        "test_a_server_that_stands_still_costs_no_attempt": STANDS_STILL,
        "test_a_machine_that_stands_still_with_all_of_them_costs_no_attempt": STANDS_STILL,
    },
    "server/dripping.py": {
        "ByHand.drip": "it drips until there is an answer, however slowly",
    },
    "server/test_deadlines.py": {
        "test_a_block_that_exceeds_its_deadline_times_out_and_shorter_blocks_finish": VIRTUAL,
        "test_an_expired_inner_deadline_does_not_expire_the_outer_one": VIRTUAL,
    },
    "server/test_waiting_room.py": {
        "Room._calm": VIRTUAL,
        "room": VIRTUAL,
        "test_a_waiting_worker_claims_at_a_limited_rate_while_another_queue_is_busy": VIRTUAL,
    },
    "store/postgres/test_waking.py": {
        "test_notifications_of_many_concurrent_commits_are_rate_limited": GROWS,
    },
    "systems/blobs/test_contract.py": {
        "test_a_blob_that_was_last_put_before_the_retention_period_is_pruned": AHEAD,
    },
    "systems/fleet/loads/gated.py": {
        "work": POLLS,
    },
    "systems/fleet/loads/marking.py": {
        "mark": "an instant, of which a test asks whether it is before another one",
    },
    "systems/fleet/loads/waiting.py": {
        "Work.__init__": POLLS,
    },
    "systems/fleet/test_driving.py": {
        "test_agents_with_wrong_clocks_begin_at_one_true_instant": GROWS,
        "test_no_agent_runs_its_first_operation_before_the_start_instant_by_the_monotonic_clock": GROWS,
    },
    "systems/fleet/test_lines.py": {
        "Talks.run": VIRTUAL,
        "driven": VIRTUAL,
    },
    "systems/schedules/test_once.py": {
        "test_the_clock_of_a_scheduler_does_not_matter": AHEAD,
    },
    "testing/test_clocks.py": {
        "test_a_sleep_of_an_hour_on_virtual_time_needs_no_real_waiting": VIRTUAL,
    },
    "testing/test_in_memory.py": {
        "sleep_in": VIRTUAL,
        "add": "a thread at work, for which virtual time waits",
        "test_waiting_for_a_result_is_in_the_time_of_the_test": VIRTUAL,
        "test_afterwards_the_loop_has_its_own_time_again": TWO_CLOCKS,
    },
    "testing/test_pytest_plugin.py": {
        "PROJECT": VIRTUAL,
    },
    "testing/test_servers.py": {
        "test_a_paused_server_does_not_respond_until_it_is_resumed": IN_VAIN,
    },
    "tidy/test_backoff_is_written_once.py": {
        "test_a_planted_backoff_is_found": REFUSED,
    },
    "tidy/test_core_is_pure.py": {
        "test_reaching_for_the_system_would_be_noticed": REFUSED,
    },
    "verify/test_broken_fleets.py": {
        "test_a_drive_that_reports_no_start_although_agents_have_begun_is_noticed": VIRTUAL,
    },
    "verify/test_worlds_network.py": {
        "test_waiting_takes_no_time_and_is_reported_in_order": VIRTUAL,
        "test_a_clock_that_runs_fast_waits_less": VIRTUAL,
        "test_a_frozen_event_loop_continues_after_the_thaw_and_a_killed_one_runs_nothing_more": VIRTUAL,
        "test_store_calls_fail_during_an_outage_and_succeed_after_it": VIRTUAL,
    },
    "verify/test_worlds_wires.py": {
        "Bell.ring": VIRTUAL,
    },
    "waiting.py": {
        "pause": "the one place that waits",
        "until": "the one place that waits",
        "until_so": "the one place that waits",
    },
    "worker/process_tasks.py": {
        "first_waits": POLLS,
        "block": HANDLER,
    },
    "worker/test_cohorts_and_single_tasks.py": {
        "waits": VIRTUAL,
        "left_behind": VIRTUAL,
    },
    "worker/test_context.py": {
        "test_log_lines_of_concurrent_threads_are_sent_once_or_counted_as_missing": LOOKS_AGAIN,
    },
    "worker/test_executors.py": {
        "test_a_handler_may_begin_with_a_timeout_or_a_group": EXPIRY,
    },
    "worker/test_standing_still.py": {
        "test_a_worker_judges_its_leases_by_a_clock_that_counts_suspended_time": TWO_CLOCKS,
    },
}
"""By file, and by function or by the constant that a program is in."""
