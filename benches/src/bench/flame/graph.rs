//! A flame graph as a self-contained SVG: each box is a function, as wide as its share of the samples, above
//! its caller. Names and shares show under the pointer.

use super::stacks::Stacks;

const WIDTH: f64 = 1400.0;
const HEIGHT: f64 = 16.0;
const TOP: f64 = 30.0;
/// Narrower boxes are left out.
const NARROWEST: f64 = 0.4;
/// The width of a character of a name.
const CHARACTER: f64 = 6.6;

pub(super) fn draw(title: &str, stacks: &Stacks) -> String {
    let height = TOP + HEIGHT * (stacks.depth() + 1) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"20\" font-size=\"14\">{}: {} samples of all processors</text>\n",
        escaped(title),
        stacks.samples
    );
    let place = Place { x: 0.0, y: height, of: stacks.samples.max(1) as f64 };
    place.draw_calls(stacks, &mut svg);
    svg.push_str("</svg>\n");
    svg
}

#[derive(Clone, Copy)]
struct Place {
    x: f64,
    y: f64,
    /// All samples.
    of: f64,
}

impl Place {
    fn draw_calls(self, function: &Stacks, svg: &mut String) {
        let (mut x, y) = (self.x, self.y - HEIGHT);
        for (name, call) in &function.calls {
            let width = call.samples as f64 / self.of * WIDTH;
            if width >= NARROWEST {
                Self { x, y, ..self }.draw(name, call, width, svg);
            }
            x += width;
        }
    }

    fn draw(self, name: &str, call: &Stacks, width: f64, svg: &mut String) {
        let Self { x, y, of } = self;
        let share = call.samples as f64 / of * 100.0;
        let visible: String = name.chars().take((width / CHARACTER) as usize).collect();
        svg.push_str(&format!(
            "<g><title>{name}: {share:.2} %</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{HEIGHT}\" fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.5\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>\n",
            colour(name),
            x + 2.0,
            y + HEIGHT - 4.0,
            escaped(if visible.chars().count() > 2 { &visible } else { "" }),
            name = escaped(name)
        ));
        self.draw_calls(call, svg);
    }
}

/// Returns the same for every function of a name.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(31) ^ u32::from(byte));
    format!("hsl({}, 75%, {}%)", 10 + hash % 45, 62 + hash / 64 % 14)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_box_is_as_wide_as_its_share() {
        let script =
            "a 1 \n\t 1 Vec<T>::run\n\na 1 \n\t 1 Vec<T>::run\n\nb 2 \n\t 2 stop\n\nb 2 \n\n";
        let svg = draw("load & profile", &Stacks::of(script, &BTreeMap::new()));
        assert!(svg.contains("load &amp; profile: 4 samples"), "{svg}");
        assert!(svg.contains("<title>Vec&lt;T&gt;::run: 50.00 %</title>"), "{svg}");
        assert!(svg.contains("width=\"350.0\""), "a quarter: {svg}");
    }
}
