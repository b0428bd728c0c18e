use std::io::Write;
use std::sync::{Arc, Mutex};

use corehold_actors::train::progress::{Phase, Progress};

use crate::support::{failed, measured, sample, step};

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[test]
fn without_a_terminal_there_are_plain_lines() {
    let out = Shared::default();
    let mut progress = Progress::lines(Box::new(out.clone()));
    progress.phase(Phase::Corpus, 500);
    for done in 0..=500 {
        progress.advance(done, "3 too fast");
    }
    progress.phase(Phase::Grpo, 400);
    let samples = [
        sample(0, 0, 0, "a", measured(30.25)),
        sample(0, 1, 0, "b", measured(10.0)),
        sample(0, 2, 0, "c", failed()),
    ];
    progress.step(&step(1, &samples));
    progress.step(&step(2, &[]));
    progress.finish();
    let text = out.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines.iter().filter(|l| l.starts_with("corpus: ")).count(),
        12,
        "{text}"
    );
    assert!(text.contains("corpus: 500/500, 3 too fast\n"), "{text}");
    assert!(!text.contains('\x1b'), "no terminal codes");

    // The columns stand below their headings.
    let at = lines.iter().position(|l| l.starts_with(" step")).unwrap();
    let (heading, units, first) = (lines[at], lines[at + 1], lines[at + 2]);
    assert!(
        lines[at..at + 4].iter().all(|l| l.len() == heading.len()),
        "{text}"
    );
    assert!(units.contains("GFLOPS"));
    for (word, value) in [
        ("step", "1"),
        ("mean", "13.42"),
        ("best", "30.25"),
        ("verified", "67"),
        ("entropy", "0.500"),
        ("distinct", "2.0"),
        ("measure", "1.30"),
    ] {
        let end = heading.find(word).unwrap() + word.len();
        assert!(
            first[..end].ends_with(value),
            "{word} is not {value} in\n{text}"
        );
    }
}
