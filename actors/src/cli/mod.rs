//! The command line: one file a command. Exit codes: 0 done, 1 failed, 2 wrong use, 141 nobody read on.

// They panic where nobody reads: see `out`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod compare;
mod doctor;
mod logs;
mod members;
mod new;
mod operate;
mod out;
mod reproduce;
mod run;
mod scale;
mod summary;
mod sweep;
mod timeline;
mod top;
#[cfg(feature = "torch")]
mod train;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// An error of a command, as it is shown.
type Failure = Box<dyn std::error::Error>;

#[derive(Parser)]
#[command(
    name = "corehold",
    version,
    about = "An actor runtime that holds CPU cores, and trains on what it measures there"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the cluster of a file
    Up(Which),
    /// End it
    Down(Which),
    /// Show its nodes and actors
    Status {
        #[command(flatten)]
        which: Which,
        /// Show all the dead that the head remembers, not only the last
        #[arg(long)]
        all: bool,
        /// For programs, with all the dead
        #[arg(long)]
        json: bool,
    },
    /// Say why an actor, a pool or a placement group waits, node by node, or where it is
    Why(operate::Why),
    /// Run a training job on the cluster
    #[cfg(feature = "torch")]
    Train(train::Train),
    /// Verify and measure one kernel
    Bench(bench::Bench),
    /// Show what this machine can isolate, and how to get the rest
    Doctor {
        /// For programs
        #[arg(long)]
        json: bool,
    },
    New(new::New),
    Run(run::Run),
    Node(Box<members::Node>),
    Token(members::Token),
    Drain(members::Drain),
    /// Give a pool a size, or let it choose again
    Scale(scale::Scale),
    /// Show what actors have logged, also the dead
    Logs(logs::Logs),
    /// Watch nodes and actors at work
    Top(top::Top),
    /// Write down what happened when, to look at in Perfetto
    Timeline(timeline::Timeline),
    /// Make the cluster's keys, if it has none
    Keys(Which),
    /// Print a finished run's numbers as one JSON line
    #[command(hide = true)]
    Summary(summary::Summarise),
    /// Wait for a process to end, and give back what it held
    #[command(hide = true)]
    Sweep(sweep::Sweep),
}

/// Which cluster.
#[derive(Args)]
struct Which {
    /// The cluster's file
    #[arg(default_value = "cluster.toml")]
    cluster: PathBuf,
}

/// Parses the arguments and runs the command.
pub fn main() -> ExitCode {
    // clap ends the process by itself: 0 for --help, 2 for wrong use.
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Up(which) => operate::up(&which.cluster),
        Command::Down(which) => operate::down(&which.cluster),
        Command::Status { which, all, json } => operate::status(&which.cluster, all, json),
        Command::Why(why) => why.run(),
        #[cfg(feature = "torch")]
        Command::Train(train) => train.run(),
        Command::Bench(bench) => bench.run(),
        Command::Doctor { json } => doctor::run(json),
        Command::New(new) => new.run(),
        Command::Run(run) => run.run(),
        Command::Node(node) => node.run(),
        Command::Scale(scale) => scale.run(),
        Command::Token(token) => token.run(),
        Command::Drain(drain) => drain.run(),
        Command::Logs(logs) => logs.run(),
        Command::Top(top) => top.run(),
        Command::Timeline(timeline) => timeline.run(),
        Command::Keys(which) => operate::keys(&which.cluster),
        Command::Summary(summarise) => summarise.run(),
        Command::Sweep(sweep) => sweep.run(),
    };
    match result {
        Ok(code) => code,
        Err(why) => out::failed(&why),
    }
}
