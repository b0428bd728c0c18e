//! Lives and deaths: worker processes, death records, supervision.

pub mod actors;
mod logs;
mod supervision;
mod turns;
mod workers;

pub const ALL: &[(&str, fn())] = &[
    (
        "a_segfault_ends_the_actor_of_that_process_alone",
        workers::segfault,
    ),
    ("every_way_to_die_has_its_cause", workers::causes),
    ("memory_is_a_limit_to_a_worker", workers::memory),
    (
        "a_killed_node_leaves_no_worker_and_no_orphan",
        workers::no_orphan,
    ),
    (
        "a_worker_takes_what_it_started_with_it",
        workers::no_grandchild,
    ),
    ("a_worker_runs_on_its_held_cores", workers::held_cores),
    ("actors_in_workers_ask_each_other", workers::ask_each_other),
    ("logs_of_the_living_and_the_dead_are_found", logs::found),
    ("a_worker_restarts_as_a_new_process", workers::restart),
    ("a_worker_that_hangs_is_stopped_by_force", workers::hangs),
    (
        "children_end_with_the_life_of_their_parent",
        supervision::children,
    ),
    (
        "a_death_is_told_to_who_watches_and_who_comes_late",
        supervision::monitors,
    ),
    ("a_saved_state_survives_kill_9", supervision::saved),
    (
        "a_saved_state_survives_the_head",
        supervision::saved_before_the_head_died,
    ),
    ("a_wrong_name_lists_those_like_it", supervision::near_names),
    (
        "async_handlers_do_not_interleave_unasked",
        turns::one_at_a_time,
    ),
    ("concurrency_is_what_was_declared", turns::four_at_a_time),
    ("a_panic_after_an_await_ends_the_actor", turns::late_panic),
    (
        "a_stop_lets_the_message_in_hand_finish",
        turns::stop_finishes,
    ),
    ("a_stop_in_vain_is_told", turns::stop_in_vain),
    (
        "a_thread_that_is_busy_stalls_nobody_else",
        turns::busy_thread,
    ),
];
