-- Run once, when the source of compose.yaml is initialised. The account and the event stay here.
SET SESSION sql_log_bin = 0;
CREATE USER 'repl'@'%' IDENTIFIED BY 'change me';
GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT, SHOW VIEW, TRIGGER, EVENT ON *.* TO 'repl'@'%';
SET SESSION sql_log_bin = 1;

CREATE DATABASE shop;
CREATE TABLE shop.sale (
    id BIGINT AUTO_INCREMENT PRIMARY KEY,
    amount DECIMAL(9, 2) NOT NULL,
    at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
);

-- A write each second, to watch.
SET SESSION sql_log_bin = 0;
CREATE EVENT shop.sell ON SCHEDULE EVERY 1 SECOND
DO INSERT INTO shop.sale (amount) VALUES (ROUND(100 * RAND(), 2)), (ROUND(100 * RAND(), 2));
