use corehold_actors::train::record::Record;
use corehold_actors::train::report::report;
use corehold_actors::train::summary::Summary;

use crate::support::{facts, synthetic_run};

#[test]
fn the_report_of_a_run() {
    let tmp = tempfile::tempdir().unwrap();
    let record = synthetic_run(&tmp.path().join("one"));
    let text = report("one", &Summary::from_record(&record).unwrap());
    let wanted = "\
Run one: 60 steps in 9 min 41 s

mean over all samples (failures count 0)  GFLOPS
";
    assert!(text.starts_with(wanted), "{text}");
    for part in [
        "  OpenBLAS ",
        " 50.00 ",
        " 0.92 x",
        "  measured again ",
        " 46.00 ",
        " 77 %",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    // The numbers stand in one column: every rate ends where the heading ends.
    let end = wanted.lines().nth(2).unwrap().len();
    for line in text.lines().filter(|line| line.starts_with("  ")) {
        let (rate, gap) = (&line[end - 6..end], line.get(end..end + 1).unwrap_or(" "));
        assert!(rate.trim().parse::<f64>().is_ok() && gap == " ", "{line}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    if std::env::var_os("COREHOLD_TEST_SHOW").is_some() {
        println!("{text}");
    }
}

#[test]
fn the_report_of_a_run_that_measured_little() {
    let tmp = tempfile::tempdir().unwrap();
    let record = Record::create(tmp.path(), &facts()).unwrap();
    let text = report("empty", &Summary::from_record(&record).unwrap());
    assert!(text.contains("OpenBLAS (not measured)"), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}
