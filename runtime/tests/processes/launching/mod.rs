//! Nodes on hosts that ssh reaches.

mod failing;
mod growing;
mod hosts;
pub mod living;

/// The cases of this subject.
pub const ALL: &[(&str, fn())] = &[
    (
        "nodes_on_ssh_hosts_one_behind_a_jump_host",
        living::two_hosts,
    ),
    (
        "an_ssh_node_outlives_the_head_and_nothing_outlives_the_cluster",
        living::heads_die,
    ),
    (
        "nothing_is_left_on_a_host_whose_head_is_gone_for_good",
        living::nobody_comes_back,
    ),
    (
        "a_killed_ssh_node_is_cleaned_up_and_launched_again",
        living::node_dies,
    ),
    (
        "a_held_core_of_an_ssh_node_is_free_when_its_owner_is_killed",
        living::owner_dies,
    ),
    (
        "the_program_is_copied_when_its_hash_differs",
        living::copies,
    ),
    (
        "a_pool_grows_to_an_ssh_node_and_gives_it_back",
        growing::pool,
    ),
    (
        "a_host_that_fails_says_why_and_the_others_go_on",
        failing::typed,
    ),
    (
        "a_host_without_room_or_a_program_that_does_not_run_says_so",
        failing::full,
    ),
];
