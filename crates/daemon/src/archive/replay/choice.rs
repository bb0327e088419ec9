//! The file with which a replay begins. Pure.

use csa_provider::binlog::GtidSet;

/// Finds the last of many files for which something is true that is true for all files before it, and asks for few.
#[derive(Debug)]
pub(in crate::archive) struct Bisection {
    low: usize,
    high: usize,
}

impl Bisection {
    pub(in crate::archive) const fn new(files: usize) -> Self {
        Self { low: 0, high: files }
    }

    /// Returns the place of the file to look at next; `None` once the last one is known.
    pub(in crate::archive) const fn next(&self) -> Option<usize> {
        match self.low < self.high {
            true => Some(self.low.midpoint(self.high)),
            false => None,
        }
    }

    /// Takes the answer for the file at [`Self::next`].
    pub(in crate::archive) const fn answer(&mut self, is_true: bool) {
        let middle = self.low.midpoint(self.high);
        match is_true {
            true => self.low = middle + 1,
            false => self.high = middle,
        }
    }

    /// Returns the place of the last one; `None` if there is none.
    pub(in crate::archive) const fn last(&self) -> Option<usize> {
        self.low.checked_sub(1)
    }
}

/// Says what is missing between a target and a file.
pub(super) fn gap(name: &str, file: &str, missing: &GtidSet) -> String {
    format!(
        "{name}: transactions are missing before {file}: {}. Neither the target nor the recording has them. Restore a \
         backup that holds them, or one that was made later, and begin from there",
        missing.brief()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_file_is_found_with_few_questions() {
        let files = [10, 20, 30, 40];
        for (limit, last) in [(5, None), (10, Some(0)), (29, Some(1)), (100, Some(3))] {
            let mut search = Bisection::new(files.len());
            let mut asked = 0;
            while let Some(at) = search.next() {
                search.answer(files[at] <= limit);
                asked += 1;
            }
            assert_eq!(search.last(), last);
            assert!(asked <= 3);
        }
        assert_eq!(Bisection::new(0).last(), None);
    }
}
