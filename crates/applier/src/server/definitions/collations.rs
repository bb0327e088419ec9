//! Weights of characters, learnt from the server that compares them.

use std::collections::HashMap;
use std::sync::Arc;

use csa_provider::binlog::charset_of;
use csa_scheduler::keys::{Collation, Weights};

use crate::error::Result;
use crate::server::session::Session;
use csa_provider::server::Vendor;

/// Collations without tailoring: outside contractions a string's weights are those of its
/// characters, one after the other. Combining characters are left out, so canonical equivalents
/// never come up.
const UNTAILORED: [&str; 5] = [
    "utf8mb4_0900_ai_ci",
    "utf8mb4_0900_as_ci",
    "utf8mb4_0900_as_cs",
    "utf8mb4_general_ci",
    "utf8mb3_general_ci",
];
/// Precomposed Latin, Greek, Cyrillic, Kana, CJK, Hangul.
const SCRIPTS: [(u32, u32); 9] = [
    (0x20, 0x7e),
    (0xa0, 0x2af),
    (0x370, 0x482),
    (0x48a, 0x52f),
    (0x1e00, 0x1fff),
    (0x3041, 0x3096),
    (0x30a1, 0x30fa),
    (0x4e00, 0x9fff),
    (0xac00, 0xd7a3),
];
/// The range for tailored collations: no contraction makes two of its strings equal.
const ASCII: [(u32, u32); 1] = [(0x20, 0x7e)];
/// Parts of the names of collations that treat strings of different letters as equal, or compare single-byte
/// strings otherwise than byte by byte. Examples are "cscs" and "ccs" in Hungarian, "ch" and "c" in Lithuanian,
/// and a vowel before or after its consonant in Thai.
const UNKNOWN: [&str; 4] = ["czech", "_hu_", "lithuanian", "thai"];

/// The numbers of one hexadecimal digit.
const DIGITS: &str = "SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION \
     SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9 UNION SELECT 10 UNION \
     SELECT 11 UNION SELECT 12 UNION SELECT 13 UNION SELECT 14 UNION SELECT 15";

/// No collation of MySQL has a higher number.
const MYSQL_LAST: u16 = 400;

/// The server's collations as far as they were read; they do not change while the server runs.
#[derive(Debug, Default)]
pub(super) struct Collations {
    facts: HashMap<String, Facts>,
    known: HashMap<String, Arc<Collation>>,
}

#[derive(Debug)]
struct Facts {
    charset: String,
    single_byte: bool,
    id: u16,
}

impl Collations {
    pub(super) async fn get(
        &mut self,
        session: &mut Session,
        name: &str,
    ) -> Result<Arc<Collation>> {
        if let Some(collation) = self.known.get(name) {
            return Ok(Arc::clone(collation));
        }
        if self.facts.is_empty() {
            self.facts = read_facts(session).await?;
        }
        let collation = match self.facts.get(name) {
            None => Collation::new("", false, Weights::Unknown, Vec::new()),
            Some(facts) => {
                let weights = learn(session, name, facts).await?;
                let numbers = match session.vendor() {
                    Vendor::MySql => {
                        let alike =
                            self.facts.values().filter(|other| other.charset == facts.charset);
                        alike.map(|other| other.id).collect()
                    }
                    // The source has some that the target lacks.
                    Vendor::MySql57 | Vendor::MariaDb => source_numbers(&facts.charset),
                };
                let Facts { charset, single_byte, .. } = facts;
                Collation::new(charset, *single_byte, weights, numbers)
            }
        };
        let collation = Arc::new(collation);
        self.known.insert(name.to_owned(), Arc::clone(&collation));
        Ok(collation)
    }
}

/// Numbers of MySQL's collations of a character set.
fn source_numbers(charset: &str) -> Vec<u16> {
    // Its name before 8.0.30.
    let charset = if charset == "utf8" { "utf8mb3" } else { charset };
    let is_of = |number: &u16| charset_of(*number).is_some_and(|(name, _)| name == charset);
    (1..=MYSQL_LAST).filter(is_of).collect()
}

async fn read_facts(session: &mut Session) -> Result<HashMap<String, Facts>> {
    // On MariaDB a column's collation may have a name that several character sets share
    // (<https://mariadb.com/docs/server/reference/data-types/string-data-types/character-sets/supported-character-sets-and-collations>).
    let facts = match session.vendor() {
        Vendor::MySql | Vendor::MySql57 => {
            "SELECT c.COLLATION_NAME, c.CHARACTER_SET_NAME, c.ID, s.MAXLEN \
             FROM information_schema.COLLATIONS c JOIN information_schema.CHARACTER_SETS s \
             USING (CHARACTER_SET_NAME)"
        }
        Vendor::MariaDb => {
            "SELECT a.FULL_COLLATION_NAME, a.CHARACTER_SET_NAME, a.ID, s.MAXLEN \
             FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY a \
             JOIN information_schema.CHARACTER_SETS s USING (CHARACTER_SET_NAME)"
        }
    };
    let rows: Vec<(String, String, u16, u8)> = session.rows(facts).await?;
    let facts = rows.into_iter().map(|(name, charset, id, max_len)| {
        (name, Facts { charset, single_byte: max_len == 1, id })
    });
    Ok(facts.collect())
}

/// MariaDB's collations for one language: their contractions are not known here.
fn is_tailored_uca1400(name: &str) -> bool {
    const ROOT: [&str; 4] = ["ai_ci", "ai_cs", "as_ci", "as_cs"];
    name.split_once("_uca1400_")
        .is_some_and(|(_, rest)| !ROOT.contains(&rest.strip_prefix("nopad_").unwrap_or(rest)))
}

async fn learn(session: &mut Session, name: &str, facts: &Facts) -> Result<Weights> {
    let utf8 = facts.charset.starts_with("utf8");
    if name == "binary" || name.ends_with("_bin") {
        return Ok(Weights::Bytes);
    }
    if !(utf8 || facts.single_byte)
        || UNKNOWN.iter().any(|part| name.contains(part))
        || is_tailored_uca1400(name)
    {
        return Ok(Weights::Unknown);
    }
    let ranges: &[(u32, u32)] = match (utf8, UNTAILORED.contains(&name)) {
        (false, _) => &[(0x20, 0xff)],
        (true, true) => &SCRIPTS,
        (true, false) => &ASCII,
    };
    let charset = &facts.charset;
    let character = match utf8 {
        true => format!("CONVERT(CHAR(c USING utf32) USING {charset})"),
        false => format!("CHAR(c USING {charset})"),
    };
    // Levels are separated by a zero weight; strings that are equal are equal on the first.
    let levels = name.starts_with("utf8mb4_") && name.contains("_0900_as_");
    let mut weights = HashMap::new();
    for (first, last) in ranges {
        let weight = format!("c, WEIGHT_STRING({character} COLLATE {name})");
        let query = match session.vendor() {
            // It has no recursion.
            Vendor::MySql57 => format!(
                "SELECT {weight} FROM (SELECT h.n*4096+i.n*256+j.n*16+k.n c FROM \
                 ({DIGITS}) h, ({DIGITS}) i, ({DIGITS}) j, ({DIGITS}) k) n \
                 WHERE c BETWEEN {first} AND {last}"
            ),
            Vendor::MySql | Vendor::MariaDb => format!(
                "WITH RECURSIVE n (c) AS (SELECT {first} UNION ALL SELECT c+1 FROM n WHERE c<{last}) \
                 SELECT /*+ SET_VAR(cte_max_recursion_depth=65536) */ {weight} FROM n"
            ),
        };
        let rows: Vec<(u32, Option<Vec<u8>>)> = session.rows(&query).await?;
        for (code, weight) in rows {
            let Some(weight) = weight else { continue };
            weights.insert(code, if levels { first_level(&weight).into() } else { weight.into() });
        }
    }
    Ok(Weights::Learnt(weights))
}

fn first_level(weight: &[u8]) -> &[u8] {
    let end = weight.chunks(2).position(|pair| pair == [0, 0]).map_or(weight.len(), |n| n * 2);
    weight.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_mariadb_tell_languages() {
        for (name, tailored) in [
            ("utf8mb4_general_ci", false),
            ("utf8mb4_nopad_bin", false),
            ("utf8mb4_uca1400_ai_ci", false),
            ("utf8mb4_uca1400_nopad_as_cs", false),
            ("utf8mb4_uca1400_hungarian_ai_ci", true),
            ("utf8mb4_uca1400_hungarian_nopad_ai_ci", true),
        ] {
            assert_eq!(is_tailored_uca1400(name), tailored, "{name}");
        }
    }

    #[test]
    fn the_sources_numbers_are_mysqls() {
        let numbers = source_numbers("utf8mb4");
        for number in [45, 46, 224, 255, 309] {
            assert!(numbers.contains(&number), "{number}");
        }
        assert!(!numbers.contains(&33) && source_numbers("utf8mb3").contains(&33));
        assert!(source_numbers("binary").contains(&63));
    }
}
