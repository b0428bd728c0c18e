//! The end of a job: its best kernel measured afresh, in turn with its rivals, on the same held cores.

use corehold::Handle;

use super::corpus::{QUICK, rate};
use super::crew::persist;
use super::evaluate::Plan;
use super::grpo::timing;
use super::{Run, RunError};
use crate::benchmark::{Benchmark, MeasureBaseline, Measurer};
use crate::kernel::{Outcome, grammar};
use crate::learner::Export;
use crate::train::progress::Phase;
use crate::train::record::{CorpusRow, FinalRow, RivalKind};
use crate::verifier::VerifierError;

/// Kernels that may be the best: the single highest rate is the luckiest one.
const CANDIDATES: u32 = 12;
/// Measurements that choose among them.
const HEATS: u32 = 5;
/// Random kernels judged between two writes to the record.
const CHUNK: usize = 40;
/// Members of the pool that may be lost while they compare.
const LOST: u32 = 5;

/// The measurements that end a job, all by one benchmark.
struct Comparison {
    /// The best kernel's body.
    best: Option<String>,
    /// It and those that it is compared with.
    rivals: Vec<(RivalKind, Option<String>)>,
    /// The rounds of each.
    rows: Vec<Vec<FinalRow>>,
    /// The vendor library's.
    library: Vec<FinalRow>,
}

impl Run<'_> {
    pub(super) async fn finals(&mut self) -> Result<(), RunError> {
        self.random_rivals().await?;
        let class = self.crew.machine().await?.class;
        let mut lost = 0;
        // What is compared must be measured on the same cores: by one member, from the beginning where it is lost.
        let Comparison {
            best,
            rivals,
            rows,
            library,
        } = loop {
            if let Some(member) = self.crew.one_of(&class).await? {
                match self.compare(&member).await {
                    Err(RunError::Ask(e) | RunError::Verifier(VerifierError::Benchmark(e))) => {
                        tracing::warn!(error = %e, "the finals begin anew");
                    }
                    other => break other?,
                }
            }
            lost += 1;
            if lost > LOST {
                return Err(RunError::FinalsLost(lost));
            }
        };
        for ((kind, code), rows) in rivals.iter().zip(&rows) {
            self.record
                .add_rival(*kind, code.as_deref().unwrap_or_default(), rows)?;
        }
        if library.is_empty() {
            self.progress.note(
                "OpenBLAS is not installed here, so nothing was compared with it (Debian: libopenblas0-pthread)",
            );
        }
        self.record.add_rival(RivalKind::OpenBlas, "", &library)?;
        if let Some(best) = best {
            let kernel = crate::kernel::Kernel::from_body(&self.crew.problem, &best);
            self.record.write_file("best.c", kernel.code.as_bytes())?;
        }
        let folder = self.record.dir().join("checkpoint");
        let request = Export { folder };
        let learner = self.crew.learner.clone();
        persist(|| learner.ask(request.clone())).await??;
        Ok(())
    }

    /// The best kernel and its rivals, by one member of the pool.
    async fn compare(&mut self, member: &Handle<Benchmark>) -> Result<Comparison, RunError> {
        let rounds = self.job.benchmark.final_rounds;
        self.progress
            .phase(Phase::Finals, u64::from(rounds) + u64::from(CANDIDATES));
        let best = self.choose_best(member).await?;
        let corpus = self.record.corpus()?;
        let fastest = |kept: bool| {
            let rows = corpus.iter().filter(|row| row.kept || !kept);
            let best = rows.max_by(|a, b| highest(a).total_cmp(&highest(b)));
            best.map(|row| row.body.clone())
        };
        let mut rivals: Vec<(RivalKind, Option<String>)> = vec![
            (RivalKind::BestAgain, best.clone()),
            (RivalKind::CorpusBest, fastest(true)),
            (RivalKind::RandomBest, fastest(false)),
        ];
        rivals.retain(|(_, code)| code.is_some());
        let plan = Plan {
            by: Measurer::One(member.clone()),
            ..self.crew.once(timing(self.job.benchmark.final_budget_ms))
        };
        let mut rows: Vec<Vec<FinalRow>> = vec![Vec::new(); rivals.len()];
        let mut library: Vec<FinalRow> = Vec::new();
        for round in 0..rounds {
            // In turn, so that a drift of the machine meets all alike.
            for ((_, code), rows) in rivals.iter().zip(&mut rows) {
                let code = code.clone().unwrap_or_default();
                let evaluated = self.crew.evaluate_one(code, &plan).await?;
                rows.extend(evaluated.outcomes.last().and_then(|o| row(round, o)));
            }
            let request = MeasureBaseline {
                timing: plan.timing.clone(),
            };
            let measured = member.ask(request).await??;
            library.extend(measured.and_then(|m| row(round, &m.outcome)));
            self.progress.advance(
                u64::from(CANDIDATES + round + 1),
                "best, rivals and OpenBLAS in turn",
            );
        }
        Ok(Comparison {
            best,
            rivals,
            rows,
            library,
        })
    }

    /// As many random kernels as the job measured, as far as its draws go: what luck alone would have found.
    async fn random_rivals(&mut self) -> Result<(), RunError> {
        let measured = self.record.measured()? as usize;
        let drawn = self.record.corpus()?.len();
        if drawn >= measured {
            return Ok(());
        }
        self.progress
            .phase(Phase::Rivals, (measured - drawn) as u64);
        let plan = self.crew.once(QUICK);
        // Another seed than the corpus's: what it drew is in the record already.
        let draws = grammar::distinct(self.job.seed ^ 0x5eed, measured - drawn);
        let mut done = 0;
        for chunk in draws.chunks(CHUNK) {
            if self.elapsed().as_secs_f64() >= self.job.corpus.rivals_until {
                break;
            }
            let bodies: Vec<String> = chunk.iter().map(|d| d.body.clone()).collect();
            let evaluated = self.crew.evaluate(bodies, &plan, |_| ()).await?;
            let rows: Vec<CorpusRow> = chunk
                .iter()
                .zip(&evaluated)
                .map(|(draw, e)| CorpusRow {
                    kept: false,
                    ..self.corpus_row(&draw.body, e)
                })
                .collect();
            self.record.add_corpus(&rows)?;
            done += rows.len();
            self.progress.advance(done as u64, "random kernels");
        }
        Ok(())
    }

    async fn choose_best(
        &mut self,
        member: &Handle<Benchmark>,
    ) -> Result<Option<String>, RunError> {
        let plan = Plan {
            by: Measurer::One(member.clone()),
            measurements: HEATS,
            ..self
                .crew
                .once(timing(self.job.benchmark.final_budget_ms / 3.0))
        };
        let mut best: Option<(f64, String)> = None;
        // Of what the policy wrote itself: those that were fast in many measurements, then those that were once.
        let archived = self.archive.best(usize::MAX);
        let archived = archived.iter().filter(|elite| elite.drawn);
        let archived = archived.take(CANDIDATES as usize / 2);
        let mut bodies: Vec<String> = archived.map(|elite| elite.text.clone()).collect();
        for kernel in self.record.best_distinct(CANDIDATES)? {
            let body = body_of(&kernel.code);
            if bodies.len() < CANDIDATES as usize && !bodies.contains(&body) {
                bodies.push(body);
            }
        }
        for (i, body) in bodies.into_iter().enumerate() {
            let evaluated = self.crew.evaluate_one(body.clone(), &plan).await?;
            let mut rates: Vec<f64> = evaluated.outcomes.iter().filter_map(rate).collect();
            rates.sort_by(f64::total_cmp);
            if let Some(median) = rates.get(rates.len() / 2)
                && rates.len() == HEATS as usize
                && best.as_ref().is_none_or(|(rate, _)| median > rate)
            {
                best = Some((*median, body));
            }
            self.progress.advance(i as u64 + 1, "choosing the best");
        }
        Ok(best.map(|(_, body)| body))
    }
}

fn highest(row: &CorpusRow) -> f64 {
    row.gflops.iter().copied().fold(0.0, f64::max)
}

fn row(round: u32, outcome: &Outcome) -> Option<FinalRow> {
    match outcome {
        Outcome::Measured(m) => Some(FinalRow {
            round,
            gflops: m.gflops,
            interval: m.interval,
            calls: m.calls,
        }),
        Outcome::Contaminated(_) | Outcome::Failed(_) => None,
    }
}

/// The body within a whole function, as the record keeps it.
pub(super) fn body_of(code: &str) -> String {
    let start = code.find("{\n").map_or(0, |at| at + 2);
    let end = code.rfind("\n}").map_or(code.len(), |at| at + 1);
    code.get(start..end).unwrap_or(code).to_owned()
}
