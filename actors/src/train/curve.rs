//! `curve.png`: how the rate rose over the steps, and what it is to be compared with.

use std::io::Cursor;

use image::{ImageFormat, RgbImage};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use thiserror::Error;

use super::record::{Record, RecordError, RivalKind};

/// Pixels of the picture.
const SIZE: (u32, u32) = (1280, 640);
/// Pixels at the right that the legend has.
const LEGEND: u32 = 300;

const INK: RGBColor = RGBColor(40, 44, 52);
const FAINT: RGBColor = RGBColor(228, 230, 234);
const MEAN: RGBColor = RGBColor(31, 102, 178);
const BEST: RGBColor = RGBColor(222, 122, 30);

/// The data of the picture. Rates are in GFLOPS.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// What stands above it.
    pub title: String,
    /// One for each step that has a known rate.
    pub points: Vec<Point>,
    /// Rates to compare with, as dashed horizontal lines.
    pub levels: Vec<Level>,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The step.
    pub step: u32,
    /// Mean over all its samples, failures as 0.
    pub mean: f64,
    /// Its best sample.
    pub best: f64,
}

/// A rate to compare with.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// What it is.
    pub label: String,
    /// The rate.
    pub gflops: f64,
}

/// Why the picture could not be made.
#[derive(Debug, Error)]
pub enum CurveError {
    /// The record can't be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The drawing failed.
    #[error("can't draw the curve: {0}")]
    Draw(String),
}

impl Curve {
    /// The curve of a run, finished or not.
    ///
    /// # Errors
    /// [`RecordError`] if the record can't be read.
    pub fn from_record(record: &Record) -> Result<Self, RecordError> {
        let run = record.run()?;
        let points = record.steps()?.into_iter().filter_map(|s| {
            Some(Point {
                step: s.step,
                mean: s.mean_gflops?,
                best: s.best_gflops?,
            })
        });
        let rivals = record.rivals()?;
        let rival = |kind| rivals.iter().find(|r| r.kind == kind).map(|r| r.gflops);
        let levels = [
            ("measured peak", run.peak_gflops),
            ("OpenBLAS", rival(RivalKind::OpenBlas)),
            ("best, measured again", rival(RivalKind::BestAgain)),
            ("best random kernel", rival(RivalKind::RandomBest)),
            ("corpus best", rival(RivalKind::CorpusBest)),
            ("warm-started mean", record.warm_started()?.mean_gflops),
        ];
        Ok(Self {
            title: format!("{}: measured speed of the sampled kernels", run.problem),
            points: points.collect(),
            levels: levels
                .into_iter()
                .filter_map(|(label, rate)| {
                    Some(Level {
                        label: label.to_owned(),
                        gflops: rate?,
                    })
                })
                .collect(),
        })
    }

    /// The picture, as the bytes of a PNG file.
    ///
    /// # Errors
    /// [`CurveError::Draw`].
    pub fn to_png(&self) -> Result<Vec<u8>, CurveError> {
        let (width, height) = SIZE;
        let mut pixels = vec![0; (width * height * 3) as usize];
        {
            // Done again for each picture: it replaces itself.
            plotters::style::register_font(
                "sans-serif",
                FontStyle::Normal,
                epaint_default_fonts::UBUNTU_LIGHT,
            )
            .map_err(|_| CurveError::Draw("the embedded font is damaged".to_owned()))?;
            let root = BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area();
            self.draw(&root)
                .map_err(|e| CurveError::Draw(e.to_string()))?;
        }
        let image = RgbImage::from_raw(width, height, pixels)
            .ok_or_else(|| CurveError::Draw("the picture has another size".to_owned()))?;
        let mut png = Cursor::new(Vec::new());
        image
            .write_to(&mut png, ImageFormat::Png)
            .map_err(|e| CurveError::Draw(e.to_string()))?;
        Ok(png.into_inner())
    }

    fn draw(&self, root: &Area<'_>) -> Drawn<'_> {
        root.fill(&WHITE)?;
        let (plot, legend) = root.split_horizontally(SIZE.0 - LEGEND);
        let first = self.points.iter().map(|p| p.step).min().unwrap_or(1).min(1);
        let last = self.points.iter().map(|p| p.step).max().unwrap_or(0).max(2);
        let rates = self.points.iter().flat_map(|p| [p.mean, p.best]);
        let top = rates
            .chain(self.levels.iter().map(|l| l.gflops))
            .fold(1.0, f64::max)
            * 1.08;

        let mut chart = ChartBuilder::on(&plot)
            .caption(&self.title, ("sans-serif", 28).into_font().color(&INK))
            .margin(16)
            .margin_right(4)
            .x_label_area_size(54)
            .y_label_area_size(68)
            .build_cartesian_2d(f64::from(first)..f64::from(last), 0_f64..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .x_labels(10)
            .y_labels(9)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .x_desc("step")
            .y_desc("GFLOPS")
            .axis_desc_style(("sans-serif", 22).into_font().color(&INK))
            .label_style(("sans-serif", 20).into_font().color(&INK))
            .draw()?;
        for (i, level) in self.levels.iter().enumerate() {
            let ends = [
                (f64::from(first), level.gflops),
                (f64::from(last), level.gflops),
            ];
            chart.draw_series(DashedLineSeries::new(
                ends,
                8,
                6,
                level_color(i).stroke_width(2),
            ))?;
        }
        let best = self.points.iter().map(|p| (f64::from(p.step), p.best));
        chart.draw_series(LineSeries::new(best, BEST.stroke_width(2)))?;
        let mean = self.points.iter().map(|p| (f64::from(p.step), p.mean));
        chart.draw_series(LineSeries::new(mean, MEAN.stroke_width(4)))?;
        // A line needs two points; a run of one step shows its dots.
        if let [only] = self.points[..] {
            let at = f64::from(only.step);
            chart.draw_series([Circle::new((at, only.best), 5, BEST.filled())])?;
            chart.draw_series([Circle::new((at, only.mean), 5, MEAN.filled())])?;
        }
        self.draw_legend(&legend)?;
        root.present()
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn<'_> {
        let value = |of: fn(&Point) -> f64| self.points.last().map(of);
        let curves = [
            ("best of each step", BEST, 2, value(|p| p.best)),
            ("mean of each step", MEAN, 4, value(|p| p.mean)),
        ];
        let mut y = 70;
        let text = ("sans-serif", 20).into_font().color(&INK);
        let heading = |words: &'static str, y| Text::new(words, (12, y), text.clone());
        let right = text.clone().pos(Pos::new(HPos::Right, VPos::Top));
        let mut line =
            |label: &str, color: RGBColor, stroke: u32, dash: bool, rate: Option<f64>| {
                y += 30;
                let middle = y + 8;
                let pieces: &[(i32, i32)] = if dash {
                    &[(12, 20), (26, 34), (40, 48)]
                } else {
                    &[(12, 48)]
                };
                for &(from, to) in pieces {
                    area.draw(&PathElement::new(
                        vec![(from, middle), (to, middle)],
                        color.stroke_width(stroke),
                    ))?;
                }
                area.draw(&Text::new(label.to_owned(), (60, y), text.clone()))?;
                let rate = rate.map(|r| format!("{r:.1}")).unwrap_or_default();
                area.draw(&Text::new(rate, (LEGEND as i32 - 16, y), right.clone()))
            };
        for (label, color, stroke, rate) in curves {
            line(label, color, stroke, false, rate)?;
        }
        for (i, level) in self.levels.iter().enumerate() {
            line(&level.label, level_color(i), 2, true, Some(level.gflops))?;
        }
        area.draw(&heading("GFLOPS (curves: the last step)", 62))
    }
}

type Area<'a> = DrawingArea<BitMapBackend<'a>, plotters::coord::Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<BitMapBackend<'a> as DrawingBackend>::ErrorType>>;

/// Colours of the levels, told apart also by those who see few colours: dark to light.
fn level_color(i: usize) -> RGBColor {
    const COLORS: [RGBColor; 6] = [
        RGBColor(30, 30, 30),
        RGBColor(176, 42, 48),
        RGBColor(200, 100, 160),
        RGBColor(110, 80, 170),
        RGBColor(52, 140, 80),
        RGBColor(120, 170, 200),
    ];
    COLORS[i % COLORS.len()]
}
