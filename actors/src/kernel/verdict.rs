//! What the verifier and the benchmark say of a kernel.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What became of one completion. The first failure decides (design: verifier).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// It compiled, ran, and every checked call was right.
    Correct,
    /// No code block, no required signature, or syntax that does not parse.
    FormatViolation(String),
    /// A forbidden header, call or inline assembly.
    LibraryViolation(String),
    /// The compiler refused it.
    CompileError(String),
    /// It, or its compilation, did not end in time.
    Timeout(String),
    /// It was killed by a signal, by the sandbox, or broke the harness protocol.
    RuntimeError(String),
    /// A checked call gave a wrong result.
    WrongResult(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, why) = match self {
            Verdict::Correct => return f.write_str("correct"),
            Verdict::FormatViolation(why) => ("not of the required form", why),
            Verdict::LibraryViolation(why) => ("forbidden", why),
            Verdict::CompileError(why) => ("does not compile", why),
            Verdict::Timeout(why) => ("out of time", why),
            Verdict::RuntimeError(why) => ("died", why),
            Verdict::WrongResult(why) => ("wrong result", why),
        };
        // What a compiler says has lines.
        let sep = if why.trim_end().contains('\n') {
            "\n"
        } else {
            " "
        };
        write!(f, "{what}:{sep}{}", why.trim_end())
    }
}

/// How much of a measurement's time the held cores were not the kernel's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contamination {
    /// Share of wall time that the kernel's threads were runnable but did not run
    /// (`/proc/PID/schedstat`, second field), 0 to 1.
    pub run_delay: f64,
    /// Involuntary context switches a second of measured time.
    pub involuntary_switches: f64,
    /// Share of the slot's time stolen by the hypervisor (`/proc/stat`), 0 to 1.
    pub steal: f64,
    /// Batches thrown away and measured again because they were contaminated.
    pub retried: u32,
    /// How many times slower than when quiet a loop over a part of the last-level cache was
    /// between the batches, in the median: 1 without neighbours in caches and memory, 0 where
    /// it was not measured.
    #[serde(default)]
    pub canary: f64,
    /// Batches that were used only where quiet ones were few, because that loop was slow just
    /// before them.
    #[serde(default)]
    pub loud: u32,
    /// Share of wall time that the held core did not run the kernel, 0 to 1: what ran there instead, interrupts where
    /// their time is told apart, and the time that a quota above us kept the kernel from running. From the processor time of the
    /// kernel's process against the referee's clock, so also where the operating system counts no run delay. 0 on
    /// several cores, where a thread that sleeps would look the same.
    #[serde(default)]
    pub foreign: f64,
    /// Share of the held cores' time in interrupts and what they put off (`/proc/stat`, irq and softirq, in steps of 10 ms),
    /// 0 to 1.
    #[serde(default)]
    pub interrupts: f64,
}

/// What the held core made of work that is always the same, just before and just after a measurement: the means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Rate of a fixed product of matrices of 1.3 MiB on one core, in 10^9 floating-point operations a second. 0 where it
    /// was not measured.
    pub gflops: f64,
    /// Rate of fused multiply-adds from registers then, all held cores together, in 10^9 floating-point operations a
    /// second; the slot's peak is the highest ever seen.
    pub peak_gflops: f64,
}

/// One sealed measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The rate that is rewarded, in 10^9 floating-point operations a second.
    pub gflops: f64,
    /// Lower and upper end of the 95 % bootstrap interval of `gflops`.
    pub interval: (f64, f64),
    /// Median seconds a call.
    pub median_s: f64,
    /// Median absolute deviation of the batches' seconds a call.
    pub mad_s: f64,
    /// Timed calls, every one of them verified.
    pub calls: u32,
    /// Batches they were timed in.
    pub batches: u32,
    /// `gflops` over the slot's measured peak.
    pub share_of_peak: f64,
    /// What the core made of a fixed work then.
    #[serde(default)]
    pub calibration: Calibration,
    /// Class of the node and slot that it was made on ([`super::class_of`]). Rates of unlike classes are never compared.
    #[serde(default)]
    pub class: String,
    /// The node that made it; empty where it was made without a cluster.
    #[serde(default)]
    pub node: String,
    /// A random number of its own: what has the same one is the same measurement. 0 where it was made without a cluster.
    #[serde(default)]
    pub number: u64,
    /// What disturbed it.
    pub contamination: Contamination,
}

/// How a sealed measurement ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Clean: may be rewarded.
    Measured(Measurement),
    /// The budget ended before enough clean batches were seen: earns no reward and
    /// no penalty.
    Contaminated(Measurement),
    /// A timed call was wrong, late or fatal.
    Failed(Verdict),
}
