//! Nodes on hosts that ssh reaches.

mod failing;
mod hosts;
mod living;

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
        "the_program_is_copied_when_its_hash_differs",
        living::copies,
    ),
    (
        "a_host_that_fails_says_why_and_the_others_go_on",
        failing::typed,
    ),
];
