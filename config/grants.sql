-- On the source. The account is no business of its replicas, whose accounts may not make accounts:
SET SESSION sql_log_bin = 0;
CREATE USER 'repl'@'%' IDENTIFIED BY 'change me';
GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%';
SET SESSION sql_log_bin = 1;
-- For csa-daemon verify and the tables in check --connect, this account or another (--source-user):
-- GRANT SELECT ON *.* TO 'repl'@'%';

-- On the target. Rows and the checkpoint:
CREATE USER 'csa'@'%' IDENTIFIED BY 'change me';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO 'csa'@'%';
-- Without these two rows are written by INSERT, UPDATE and DELETE (executor = "sql"), which needs TRIGGER below:
GRANT REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN ON *.* TO 'csa'@'%';
-- Replicated DDL:
GRANT DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, TRIGGER, EVENT,
      EXECUTE ON *.* TO 'csa'@'%';
GRANT SET_ANY_DEFINER, ALLOW_NONEXISTENT_DEFINER ON *.* TO 'csa'@'%';
-- Views, routines, triggers and events whose definer is a system account, as root is:
GRANT SYSTEM_USER ON *.* TO 'csa'@'%';
-- Replicated DDL under tagged GTIDs; leave it out for a target older than 8.3:
GRANT TRANSACTION_GTID_TAG ON *.* TO 'csa'@'%';
-- Replicated account management, only if the source's accounts are to be the target's; without it a CREATE USER or GRANT
-- of the source stops the channel. Whoever passes a privilege on has to have it, WITH GRANT OPTION:
-- GRANT CREATE USER, ROLE_ADMIN ON *.* TO 'csa'@'%' WITH GRANT OPTION;
