package com.example;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.util.backoff.FixedBackOff;

/** A Spring Boot application that puts each order into a file of the storehouse. */
@SpringBootApplication
public class OrdersSpring {
    private final Shop shop = new Shop();

    public static void main(String[] args) {
        SpringApplication.run(OrdersSpring.class, args);
    }

/* page: DefaultErrorHandler */
/* page: @KafkaListener */
}

class Shop {
    void process(String key, String value) {
        if (value.equals("invalid")) throw new ValidationException("no such article");
        try {
            Files.writeString(Path.of("storehouse", key), value + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException away) {
            throw new IllegalStateException("the storehouse is not there", away);
        }
    }
}

class ValidationException extends RuntimeException {
    ValidationException(String message) { super(message); }
}
