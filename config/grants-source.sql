-- The account of a channel on its source; grants-target.sql has the one on its target.
-- Replicas don't need this account, and theirs may lack the privilege to create it, so it stays out of the binary log. In a
-- group (docs/group-replication.md) every member needs it: leave this line out there.
SET SESSION sql_log_bin = 0;
CREATE USER 'repl'@'%' IDENTIFIED BY 'change me';
GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%';
-- For csa-daemon verify and the tables in check --connect, this account or another (--source-user):
-- GRANT SELECT ON *.* TO 'repl'@'%';
-- For csa-daemon copy, in addition:
-- GRANT REPLICATION CLIENT, SHOW VIEW, TRIGGER, EVENT ON *.* TO 'repl'@'%';
SET SESSION sql_log_bin = 1;
