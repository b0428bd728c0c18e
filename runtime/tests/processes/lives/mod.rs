//! Lives and deaths: worker processes, death records, supervision.

mod actors;
mod logs;
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
    ("actors_in_workers_ask_each_other", workers::ask_each_other),
    ("logs_of_the_living_and_the_dead_are_found", logs::found),
    ("a_worker_restarts_as_a_new_process", workers::restart),
    ("a_worker_that_hangs_is_stopped_by_force", workers::hangs),
];
