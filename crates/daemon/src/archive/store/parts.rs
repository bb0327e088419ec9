//! The parts in which a file is sent and read.

/// Bytes of a file in one request. A client limits the time of a request, so a whole file would need a fast link.
pub(super) const PART: usize = 8 << 20;
/// The most parts of a file, with some to spare: S3 takes 10,000.
const PARTS: u64 = 9_000;
/// The most bytes of a file with several transactions.
pub(crate) const SEVERAL_MAX: u64 = PARTS * PART as u64;

/// Returns the bytes of one part of a file whose first transaction has so many bytes.
pub(super) fn part_bytes(first: u64) -> usize {
    PART.max(first.div_ceil(PARTS) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_has_more_parts_than_s3_takes() {
        for (first, whole) in [(1, SEVERAL_MAX), (SEVERAL_MAX, SEVERAL_MAX)] {
            assert_eq!(part_bytes(first), PART);
            assert!(whole.div_ceil(PART as u64) <= 10_000);
        }
        for gibibytes in [71_u64, 100, 4_000] {
            let whole = gibibytes << 30;
            assert!(whole.div_ceil(part_bytes(whole) as u64) <= PARTS, "{gibibytes} GiB");
        }
    }
}
