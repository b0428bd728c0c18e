//! What a user sees while a job runs: bars on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::record::StepRow;
use super::report::clock;

/// The phases of a job, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Drawing and measuring the corpus.
    Corpus,
    /// Supervised training on it.
    WarmStart,
    /// Reinforcement learning.
    Grpo,
    /// Measuring random kernels, for comparison.
    Rivals,
    /// Measuring the best kernel and its rivals.
    Finals,
}

impl Phase {
    /// Its name on the display.
    pub fn title(self) -> &'static str {
        match self {
            Self::Corpus => "corpus",
            Self::WarmStart => "warm start",
            Self::Grpo => "GRPO",
            Self::Rivals => "rivals",
            Self::Finals => "finals",
        }
    }
}

/// The progress display.
pub struct Progress {
    out: Out,
    phase: Option<Current>,
    best: Option<f64>,
}

enum Out {
    /// A terminal: one bar below, lines above it.
    Bar(ProgressBar),
    /// Anything else.
    Lines(Box<dyn Write + Send>),
}

struct Current {
    phase: Phase,
    total: u64,
    tenths: u64,
    since: std::time::Instant,
}

impl Progress {
    /// A display on stdout: a bar if that is a terminal, plain lines if not.
    pub fn stdout() -> Self {
        if std::io::stdout().is_terminal() {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
            Self {
                out: Out::Bar(bar),
                phase: None,
                best: None,
            }
        } else {
            Self::lines(Box::new(std::io::stdout()))
        }
    }

    /// Plain lines to `writer`.
    pub fn lines(writer: Box<dyn Write + Send>) -> Self {
        Self {
            out: Out::Lines(writer),
            phase: None,
            best: None,
        }
    }

    /// A phase begins, of `total` units (kernels, seconds, steps or measurements).
    pub fn phase(&mut self, phase: Phase, total: u64) {
        self.end_phase();
        self.phase = Some(Current {
            phase,
            total,
            tenths: 0,
            since: std::time::Instant::now(),
        });
        match &mut self.out {
            Out::Bar(bar) => {
                let template = "{prefix:>10} [{bar:32}] {pos}/{len}  {elapsed}  {msg}";
                let style = ProgressStyle::with_template(template)
                    .expect("a constant template")
                    .progress_chars("=> ");
                bar.set_style(style);
                bar.set_length(total);
                bar.set_prefix(phase.title());
                bar.set_message("");
                bar.set_position(0);
                bar.reset_elapsed();
                // A long step must not look like a hung one.
                bar.enable_steady_tick(std::time::Duration::from_millis(500));
            }
            Out::Lines(_) => self.note(&format!("{}: begins", phase.title())),
        }
        if phase == Phase::Grpo {
            self.note(HEADER);
        }
    }

    /// `done` units of the phase are done; an empty message leaves the last one. Plain
    /// lines are written at each tenth only.
    pub fn advance(&mut self, done: u64, message: &str) {
        let Some(current) = &mut self.phase else {
            return;
        };
        match &self.out {
            Out::Bar(bar) => {
                if !message.is_empty() {
                    bar.set_message(message.to_owned());
                }
                bar.set_position(done);
            }
            Out::Lines(_) => {
                let tenths = done.saturating_mul(10) / current.total.max(1);
                if tenths > current.tenths {
                    current.tenths = tenths;
                    let comma = if message.is_empty() { "" } else { ", " };
                    let line = format!(
                        "{}: {done}/{}{comma}{message}",
                        current.phase.title(),
                        current.total
                    );
                    self.note(&line);
                }
            }
        }
    }

    /// A step is done: its line, below [the heading](Phase::Grpo) that the phase began
    /// with.
    pub fn step(&mut self, row: &StepRow) {
        self.best = [self.best, row.best_gflops]
            .into_iter()
            .flatten()
            .reduce(f64::max);
        let line = step_line(row);
        self.note(&line);
        if let (Out::Bar(bar), Some(best)) = (&self.out, self.best) {
            bar.set_message(format!("best so far {best:.1} GFLOPS"));
        }
    }

    /// A line of its own.
    pub fn note(&mut self, line: &str) {
        match &mut self.out {
            Out::Bar(bar) => bar.println(line),
            // A display that nobody reads any more must not stop the job.
            Out::Lines(writer) => drop(writeln!(writer, "{line}").and_then(|()| writer.flush())),
        }
    }

    /// All is done, or given up: the bar goes, the lines stay.
    pub fn finish(&mut self) {
        self.end_phase();
        if let Out::Bar(bar) = &self.out {
            bar.finish_and_clear();
        }
    }

    fn end_phase(&mut self) {
        if let Some(ended) = self.phase.take() {
            let took = clock(ended.since.elapsed().as_secs_f64());
            self.note(&format!("{}: done in {took}", ended.phase.title()));
        }
    }
}

const HEADER: &str = concat!(
    " step    mean    best  compiled  verified  entropy  distinct |",
    "  write  check  measure  learn  publish\n",
    "       GFLOPS  GFLOPS         %         %     nats   a group |",
    "      s      s        s      s        s"
);

fn step_line(row: &StepRow) -> String {
    let number = |value: Option<f64>, width: usize, places: usize| match value {
        Some(v) => format!("{v:>width$.places$}"),
        None => format!("{:>width$}", "-"),
    };
    let percent = |share: Option<f64>| number(share.map(|s| s * 100.0), 10, 0);
    let s = &row.seconds;
    format!(
        "{:>5}{}{}{}{}{:>9.3}{} |{:>7.2}{:>7.2}{:>9.2}{:>7.2}{:>9.2}",
        row.step,
        number(row.mean_gflops, 8, 2),
        number(row.best_gflops, 8, 2),
        percent(row.compiled_share),
        percent(row.verified_share),
        row.learnt.entropy,
        number(row.distinct, 10, 1),
        s.rollout,
        s.verifier,
        s.benchmark,
        s.learner,
        s.publish,
    )
}
