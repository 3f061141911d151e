package com.example;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;

/** An application on Kafka Streams with the settings of a file; it puts each order, a number, into a file of the storehouse. */
public class OrdersStreams {
    static final Serde<String> keys = Serdes.String();
    static final Serde<Integer> values = Serdes.Integer();

    public static void main(String[] args) throws IOException {
        Properties settings = new Properties();
        try (FileInputStream file = new FileInputStream(args[0])) {
            settings.load(file);
        }
        StreamsBuilder builder = new StreamsBuilder();
        /* page: builder.stream */
        orders.foreach(OrdersStreams::store);
        new KafkaStreams(builder.build(), settings).start();
    }

    private static void store(String key, Integer value) {
        try {
            Files.writeString(Path.of("storehouse", key), value + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException away) {
            throw new UncheckedIOException("the storehouse is not there", away);
        }
    }
}
