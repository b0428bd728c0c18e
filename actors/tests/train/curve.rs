use corehold_actors::train::curve::{Curve, Level, Point};

use crate::support::synthetic_run;

/// How many pixels of a picture are of one of these colours.
fn pixels(png: &[u8], color: [u8; 3]) -> usize {
    let image = image::load_from_memory_with_format(png, image::ImageFormat::Png)
        .unwrap()
        .to_rgb8();
    assert_eq!(image.dimensions(), (1280, 640));
    image.pixels().filter(|p| p.0 == color).count()
}

const MEAN: [u8; 3] = [31, 102, 178];
const BEST: [u8; 3] = [222, 122, 30];
const INK: [u8; 3] = [40, 44, 52];

#[test]
fn a_run_is_drawn() {
    let tmp = tempfile::tempdir().unwrap();
    let record = synthetic_run(&tmp.path().join("one"));
    let curve = Curve::from_record(&record).unwrap();
    assert_eq!(curve.points.len(), 60);
    assert_eq!(curve.levels.len(), 6);
    let png = curve.to_png().unwrap();
    record.write_file("curve.png", &png).unwrap();
    assert!(pixels(&png, MEAN) > 500, "the mean is not there");
    assert!(pixels(&png, BEST) > 200, "the best is not there");
    assert!(pixels(&png, INK) > 200, "axes and words are not there");
    if let Some(path) = std::env::var_os("COREHOLD_TEST_KEEP_CURVE") {
        std::fs::write(path, png).unwrap();
    }
}

#[test]
fn few_or_no_steps_are_drawn_too() {
    let mut curve = Curve {
        title: "nothing yet".to_owned(),
        ..Curve::default()
    };
    let empty = curve.to_png().unwrap();
    curve.points.push(Point {
        step: 1,
        mean: 3.0,
        best: 5.0,
    });
    curve.levels.push(Level {
        label: "peak".to_owned(),
        gflops: 60.0,
    });
    let one = curve.to_png().unwrap();
    assert!(pixels(&one, MEAN) > pixels(&empty, MEAN));
}
