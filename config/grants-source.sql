-- The account of a channel on its source; grants-target.sql has the one on its target.
-- Replicas don't need this account, and theirs may lack the privilege to create it, so it stays out of the binary log. In a
-- group (docs/group-replication.md) every member needs it: leave this line out there.
SET SESSION sql_log_bin = 0;
CREATE USER 'repl'@'%' IDENTIFIED BY 'change me';
GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%';
-- For a first start that copies, csa-daemon copy and csa-daemon verify. A channel that does without them needs no more than
-- the line above.
GRANT SELECT, REPLICATION CLIENT, SHOW VIEW, TRIGGER, EVENT ON *.* TO 'repl'@'%';
SET SESSION sql_log_bin = 1;
