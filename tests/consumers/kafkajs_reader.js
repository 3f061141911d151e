// Reads topics with KafkaJS as a stranger installs it, and prints the records: BOOTSTRAP GROUP COUNT TOPIC...
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, groupId, count, ...topics] = process.argv.slice(2);
const text = (raw) => (raw === null || raw === undefined ? null : raw.toString("latin1"));
const consumer = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR }).consumer({ groupId });
let left = Number(count);

const end = (code, error) => {
  if (error) console.error(error.message);
  consumer.disconnect().finally(() => process.exit(code));
};

const eachMessage = async ({ topic, partition, message }) => {
  const headers = Object.entries(message.headers).flatMap(([name, values]) => [values].flat().map((v) => [name, text(v)]));
  console.log(JSON.stringify([topic, partition, Number(message.offset), text(message.key), text(message.value), headers]));
  if (--left === 0) end(0);
};

consumer.on(consumer.events.CRASH, ({ payload }) => end(1, payload.error));
setTimeout(() => end(1, new Error(`${left} of ${count} records did not come`)), 180_000);
(async () => {
  await consumer.connect();
  await consumer.subscribe({ topics, fromBeginning: true });
  await consumer.run({ eachMessage });
})().catch((error) => end(1, error));
