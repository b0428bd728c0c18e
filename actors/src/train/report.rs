//! The table at the end of a run.

use super::summary::{LAST, Summary};

/// The report of a run: before and after, the best kernel, and what it is compared with.
/// Plain text, aligned, at most 80 columns wide, ending in a newline.
pub fn report(name: &str, s: &Summary) -> String {
    let mut table = Table::default();
    table.head("mean over all samples (failures count 0)", "GFLOPS", "");
    table.rate(
        "  the warm-started policy",
        s.mean_gflops_first,
        String::new(),
    );
    let gain = s.gain.map(|g| format!("{g:.2} x")).unwrap_or_default();
    table.rate(
        &format!("  the last {LAST} steps"),
        s.mean_gflops_last,
        gain,
    );

    table.head("the best kernel", "GFLOPS", "of peak");
    let of_peak = |rate: Option<f64>| percent(rate, s.peak_gflops);
    table.rate(
        "  as sampled (the luckiest timing)",
        s.best_gflops,
        of_peak(s.best_gflops),
    );
    table.rate(
        "  measured again",
        s.best_again_gflops,
        of_peak(s.best_again_gflops),
    );

    table.head("in turn with it, on the same core", "GFLOPS", "best is");
    let times = |rival: Option<f64>| match (s.best_again_gflops, rival) {
        (Some(best), Some(rival)) if rival > 0.0 => format!("{:.2} x", best / rival),
        _ => String::new(),
    };
    table.rate(
        "  the corpus's best",
        s.corpus_best_gflops,
        times(s.corpus_best_gflops),
    );
    table.rate(
        &format!("  the best of {} random kernels", s.random_measured),
        s.random_best_gflops,
        times(s.random_best_gflops),
    );
    match s.openblas_gflops {
        Some(_) => table.rate("  OpenBLAS", s.openblas_gflops, times(s.openblas_gflops)),
        None => table.row("  OpenBLAS (not measured)", "-", ""),
    }
    table.rate(
        "  the core's measured peak",
        s.peak_gflops,
        times(s.peak_gflops),
    );

    let steps = match s.steps {
        1 => "1 step".to_owned(),
        n => format!("{n} steps"),
    };
    let mut text = format!(
        "Run {name}: {steps} in {}\n\n{}",
        clock(s.seconds.unwrap_or(0.0)),
        table.render()
    );
    text += &format!(
        "\nThe policy wrote {} right kernels in all.\n",
        s.samples_measured
    );
    if let (Some(verified), Some(distinct)) = (s.verified_share_last, s.distinct_last) {
        text += &format!(
            "\nIn the last {LAST} steps {:.0} % of samples were right, with {distinct:.1} different right\nkernels a group.\n",
            verified * 100.0
        );
    }
    text
}

#[derive(Default)]
struct Table {
    rows: Vec<Option<[String; 3]>>,
}

impl Table {
    /// Starts a section.
    fn head(&mut self, what: &str, value: &str, note: &str) {
        if !self.rows.is_empty() {
            self.rows.push(None);
        }
        self.row(what, value, note);
    }

    fn row(&mut self, what: &str, value: &str, note: &str) {
        self.rows.push(Some([what, value, note].map(str::to_owned)));
    }

    fn rate(&mut self, what: &str, rate: Option<f64>, note: String) {
        let value = rate.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}"));
        self.row(what, &value, &note);
    }

    fn render(&self) -> String {
        let width = |column: usize| {
            self.rows
                .iter()
                .flatten()
                .map(|r| r[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let (first, second, third) = (width(0), width(1), width(2));
        let lines = self.rows.iter().map(|row| match row {
            None => String::new(),
            Some([what, value, note]) => {
                format!("{what:<first$}  {value:>second$}  {note:>third$}")
                    .trim_end()
                    .to_owned()
            }
        });
        lines.map(|line| line + "\n").collect()
    }
}

fn percent(part: Option<f64>, whole: Option<f64>) -> String {
    match (part, whole) {
        (Some(part), Some(whole)) if whole > 0.0 => format!("{:.0} %", 100.0 * part / whole),
        _ => String::new(),
    }
}

/// Seconds as `9 min 41 s`.
pub(super) fn clock(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}
