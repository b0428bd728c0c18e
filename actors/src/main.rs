//! The program `corehold`: the cluster's operator, the training job, and every process of the cluster.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Builds with and without torch come from the same sources and may form one cluster.
    corehold::declare_build_id(env!("COREHOLD_BUILD_ID"));
    if let Some(code) = corehold::entry::serve_role() {
        return code;
    }
    corehold_actors::cli::main()
}
