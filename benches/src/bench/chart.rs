//! A bar chart of ratios as a self-contained SVG.

use super::drain::DrainResult;

const BAR: f64 = 18.0;
const STEP: f64 = 26.0;
const LEFT: f64 = 190.0;
const PLOT: f64 = 460.0;
const WIDTH: f64 = 740.0;
const TOP: f64 = 56.0;

/// csa-daemon's rate over that of the server's own applier, one bar for each result.
pub(super) fn ratios(results: &[DrainResult]) -> String {
    let bars: Vec<Bar> = results.iter().map(Bar::of).collect();
    let highest = bars.iter().filter_map(|bar| bar.ratio).fold(1.0, f64::max);
    let scale = PLOT / highest;
    let height = TOP + STEP * bars.len() as f64 + 20.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"22\" font-size=\"15\">Backlog drain: csa-daemon over the server's own \
         applier at its best</text>\n"
    );
    for (index, bar) in bars.iter().enumerate() {
        svg.push_str(&bar.draw(TOP + STEP * index as f64, scale));
    }
    let one = LEFT + scale;
    svg.push_str(&format!(
        "<line x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#444\" \
         stroke-dasharray=\"3 3\"/>\n<text x=\"{one:.1}\" y=\"{:.1}\" font-size=\"11\" \
         text-anchor=\"middle\">1.0</text>\n</svg>\n",
        TOP - 6.0,
        height - 16.0,
        TOP - 10.0
    ));
    svg
}

struct Bar {
    name: String,
    ratio: Option<f64>,
}

impl Bar {
    fn of(result: &DrainResult) -> Self {
        Self {
            name: format!("{}, {}", result.load.name(), result.profile.name()),
            ratio: result.outcome.measured().map(|measured| measured.ratio),
        }
    }

    fn draw(&self, y: f64, scale: f64) -> String {
        let baseline = y + BAR - 5.0;
        let name = format!(
            "<text x=\"{:.1}\" y=\"{baseline:.1}\" text-anchor=\"end\">{}</text>\n",
            LEFT - 8.0,
            self.name
        );
        let Some(ratio) = self.ratio else {
            return format!(
                "{name}<text x=\"{:.1}\" y=\"{baseline:.1}\" fill=\"#777\">refused</text>\n",
                LEFT + 6.0
            );
        };
        let width = ratio * scale;
        format!(
            "{name}<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" \
             fill=\"#2f6db5\"/>\n<text x=\"{:.1}\" y=\"{baseline:.1}\">{ratio:.2}</text>\n",
            LEFT + width + 6.0
        )
    }
}
