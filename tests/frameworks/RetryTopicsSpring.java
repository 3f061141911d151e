package com.example;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;

/** A Spring Boot application with retry topics that puts each order into a file of the storehouse. */
@SpringBootApplication
public class RetryTopicsSpring {
    public static void main(String[] args) {
        SpringApplication.run(RetryTopicsSpring.class, args);
    }

    @RetryableTopic(attempts = "3", backOff = @BackOff(delayString = "${delay}", multiplier = 2), numPartitions = "3",
        replicationFactor = "1")
    @KafkaListener(topics = "${orders}", groupId = "${group}")
    public void order(ConsumerRecord<String, String> order) {
        try {
            Files.writeString(Path.of("storehouse", order.key()), order.value() + "\n",
                StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException away) {
            throw new IllegalStateException("the storehouse is not there", away);
        }
    }
}
