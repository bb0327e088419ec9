//! A digest of definitions, by which a copy that was interrupted knows whether they have changed.
//!
//! `csa.copy_state` keeps it as a number of 64 bits, which later builds have to compute in the same way. The first 8 bits
//! are its form, because 56 bits of SHA-256 are enough to notice a change.

use sha2::{Digest as _, Sha256};

use super::Definitions;
use crate::verify::TableName;

/// Add 1 where this version computes another digest, writes other statements, or reads rows in another order, for the same
/// source. The form tells that from a change on the source. Digests without a form, from before the first one, may begin
/// with any 8 bits.
const FORM: u64 = 3;
const FORM_BITS: u32 = 8;

/// The reason why a copy can't continue whose definitions are not those of the source any more.
pub(in crate::copy) const CHANGED: &str = "definitions on the source have changed";
const OTHER_FORM: &str = "another version of csa-daemon began it, which copies in another way";

impl Definitions {
    /// Returns the digest that this version notes.
    pub(in crate::copy) fn digest(&self) -> u64 {
        let Self { before: _, indexes, unique, foreign_keys, programs, not_copied: _ } = self;
        let mut digest = DefinitionsDigest::default();
        digest.texts(&self.unnumbered());
        digest.count(indexes.len());
        for (table, statements) in indexes {
            digest.table(table);
            digest.texts(statements);
        }
        for additions in [unique, foreign_keys] {
            digest.count(additions.len());
            for (table, statement) in additions {
                digest.table(table);
                digest.bytes(statement.as_bytes());
            }
        }
        digest.count(programs.len());
        for program in programs {
            digest.bytes(program.to_string().as_bytes());
            digest.bytes(&program.text);
        }
        digest.number()
    }

    /// Returns the reason why a copy that has noted this digest can't continue; `None` if it can.
    pub(in crate::copy) fn difference(&self, noted: u64) -> Option<&'static str> {
        let is_of_form = noted >> (u64::BITS - FORM_BITS) == FORM;
        match (is_of_form, noted == self.digest()) {
            (_, true) => None,
            (true, false) => Some(CHANGED),
            (false, false) => Some(OTHER_FORM),
        }
    }
}

/// Each part follows its length, so that no two definitions have the same bytes.
#[derive(Default)]
struct DefinitionsDigest(Sha256);

impl DefinitionsDigest {
    fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    fn texts(&mut self, texts: &[String]) {
        self.count(texts.len());
        for text in texts {
            self.bytes(text.as_bytes());
        }
    }

    fn table(&mut self, name: &TableName) {
        self.bytes(name.schema.as_bytes());
        self.bytes(name.table.as_bytes());
    }

    fn number(self) -> u64 {
        let digest = self.0.finalize();
        let number = digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        (FORM << (u64::BITS - FORM_BITS)) | (number & (u64::MAX >> FORM_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::definitions::{Program, ProgramKind};

    fn definitions() -> Definitions {
        let table = TableName { schema: "d".to_owned(), table: "t".to_owned() };
        let add = |what: &str| format!("ALTER TABLE `d`.`t` ADD {what}");
        let create = "CREATE TABLE `d`.`t` (\n  `id` int NOT NULL AUTO_INCREMENT,\n  PRIMARY KEY (`id`)\n) \
                      ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8mb4";
        let foreign_key = add("CONSTRAINT `f` FOREIGN KEY (`p`) REFERENCES `p` (`id`)");
        Definitions {
            before: vec!["CREATE DATABASE IF NOT EXISTS `d`".to_owned(), create.to_owned()],
            indexes: vec![(table.clone(), vec![add("KEY `a` (`a`)"), add("KEY `b` (`b`)")])],
            unique: vec![(table.clone(), add("UNIQUE KEY `u` (`u`)"))],
            foreign_keys: vec![(table, foreign_key)],
            programs: vec![Program {
                kind: ProgramKind::View,
                schema: "d".to_owned(),
                name: "v".to_owned(),
                settings: Default::default(),
                text: b"CREATE VIEW `d`.`v` AS SELECT 1".to_vec(),
            }],
            not_copied: Vec::new(),
        }
    }

    /// A copy that an earlier build began depends on this number. Where it has to change, so has [`FORM`].
    #[test]
    fn each_build_computes_the_same_digest() {
        assert_eq!(definitions().digest(), 0x035e_2c16_685d_a4f5);
    }

    #[test]
    fn a_change_on_the_source_is_told_from_another_form() {
        let noted = definitions().digest();
        assert_eq!(definitions().difference(noted), None);
        let mut numbered = definitions();
        numbered.before[1] = numbered.before[1].replace("=7", "=8");
        assert_eq!(numbered.difference(noted), None, "numbers are given out all the time");
        let changes: [fn(&mut Definitions); 6] = [
            |of| of.before[1].push_str(" COMMENT='x'"),
            |of| of.indexes[0].1.swap(0, 1),
            |of| std::mem::swap(&mut of.unique, &mut of.foreign_keys),
            |of| of.foreign_keys.clear(),
            |of| of.programs[0].text.push(b'0'),
            |of| of.programs[0].kind = ProgramKind::Function,
        ];
        for (place, change) in changes.iter().enumerate() {
            let mut changed = definitions();
            change(&mut changed);
            assert_eq!(changed.difference(noted), Some(CHANGED), "{place}");
        }
        // The next form, and a number without one.
        for other in [noted + (1 << 56), 0x5c5e_2c16_685d_a4f5] {
            assert_eq!(definitions().difference(other), Some(OTHER_FORM), "{other:x}");
        }
    }
}
