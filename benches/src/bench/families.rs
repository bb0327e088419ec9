//! Parents with children: transactions whose order foreign keys enforce.

use rand::Rng;
use rand::rngs::StdRng;

use super::transaction::Transaction;

/// Families of a session before it begins to end some.
const FEW: usize = 50;
/// The most children of a parent.
const MANY: u64 = 8;
/// Each session numbers its own parents: ids are this many apart.
const SESSIONS: u64 = 1_000;

/// The families that one session looks after, so that no two sessions write the same rows.
#[derive(Debug)]
pub(super) struct Families {
    session: u64,
    born: u64,
    living: Vec<Family>,
}

#[derive(Debug)]
struct Family {
    parent: u64,
    children: u64,
}

impl Family {
    /// Id of the child with this number, from 1.
    fn child(&self, number: u64) -> u64 {
        self.parent * (MANY + 1) + number
    }

    fn insert_child(&mut self, random: &mut StdRng) -> String {
        self.children += 1;
        format!(
            "INSERT INTO families.child (id,parent_id,n) VALUES ({},{},{})",
            self.child(self.children),
            self.parent,
            random.random_range(0..1_000_000_000)
        )
    }
}

impl Families {
    pub(super) fn new(session: u32) -> Self {
        Self { session: u64::from(session), born: 0, living: Vec::new() }
    }

    /// Returns the next change; children often come in another transaction than their parent.
    pub(super) fn next(&mut self, random: &mut StdRng) -> Transaction {
        if self.living.is_empty() {
            return self.begin(random);
        }
        let chosen = random.random_range(0..self.living.len());
        let family = &mut self.living[chosen];
        let n = random.random_range(0..1_000_000_000);
        match random.random_range(0..6) {
            1 if family.children < MANY => Transaction::of(&[family.insert_child(random)], 1),
            2 if family.children > 0 => {
                let child = family.child(random.random_range(1..=family.children));
                single(format!(
                    "UPDATE families.child SET n={n}, changes=changes+1 WHERE id={child}"
                ))
            }
            3 => {
                let parent = family.parent;
                single(format!(
                    "UPDATE families.parent SET n={n}, changes=changes+1 WHERE id={parent}"
                ))
            }
            4 if family.children > 0 => {
                let child = family.child(family.children);
                family.children -= 1;
                single(format!("DELETE FROM families.child WHERE id={child}"))
            }
            _ if self.living.len() >= FEW => self.end(chosen),
            _ => self.begin(random),
        }
    }

    fn begin(&mut self, random: &mut StdRng) -> Transaction {
        self.born += 1;
        let mut family = Family { parent: self.born * SESSIONS + self.session, children: 0 };
        let parent = format!("INSERT INTO families.parent (id,n) VALUES ({},0)", family.parent);
        let child = family.insert_child(random);
        self.living.push(family);
        Transaction::of(&[parent, child], 2)
    }

    fn end(&mut self, chosen: usize) -> Transaction {
        let Family { parent, children } = self.living.swap_remove(chosen);
        let statements = [
            format!("DELETE FROM families.child WHERE parent_id={parent}"),
            format!("DELETE FROM families.parent WHERE id={parent}"),
        ];
        Transaction::of(&statements, children + 1)
    }
}

fn single(statement: String) -> Transaction {
    Transaction { text: statement, row_changes: 1 }
}
